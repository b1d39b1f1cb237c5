#include "graph/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "graph/plugins.h"
#include "graph/text.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostBases = 16;

// The pipeline's name where it gives none.
std::string name_of(const std::string& file) {
  constexpr const char* kFallback = "pipeline";
  if (file == kStandardInput) return kFallback;
  const std::string base = file.substr(file.rfind('/') + 1);
  const std::string name = base.substr(0, base.rfind('.'));
  return bad_name(name).empty() ? name : kFallback;
}

// One way to write a path, for comparing.
std::string whole_path(const std::string& file) { return fs::absolute(file).lexically_normal().string(); }

std::string read_base(const std::string& file, const std::map<std::string, std::string>& known) {
  if (const auto it = known.find(whole_path(file)); it != known.end()) return it->second;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error(Exit::kPipeline, fmt::format("{}: is no regular file", escaped(file)));
  }
  return read_pipeline_text(file == "-" ? "./-" : file);  // "-" is standard input to the command line alone
}

// The types that the pipeline can name. What it goes on with would only be misread where a plugin is wrong.
std::shared_ptr<const Registry> add_plugins(Spec& spec, const PlanOptions& options, const Registry& base,
                                            std::vector<Problem>& problems) {
  for (const Override& change : options.overrides) {
    if (change.kind != Override::Kind::kPlugin) continue;
    spec.plugins.push_back(plugin_file(change.text, change.folder, {"command line", "--plugin " + change.text}));
  }
  const std::size_t before = problems.size();
  std::shared_ptr<const Registry> types = with_plugins(base, spec.plugins, problems, options.load_plugins);
  if (problems.size() != before) throw PipelineError(std::move(problems));
  return types;
}

// Reads a file with "base"; nullopt: there is none, or it cannot be read, which is told.
std::optional<BaseKeys> read_base_keys(const Document& file, std::vector<Problem>& problems) {
  Json root = file.root();
  for (const auto& [key, example] :
       {std::pair{"nodes", "\"swap\": {\"gen\": {…}} or \"set\": {\"+tap\": {…}}"},
        std::pair{"models", "\"set\": {\"models.net.hidden\": 64}"}, std::pair{"run", "\"set\": {\"run.steps\": 100}"},
        std::pair{"evaluate", "\"set\": {\"evaluate.every\": 100}"}}) {
    if (root.erase(key) == 0) continue;
    problems.push_back(
        {file.place(pointer_to(std::string(key))),
         fmt::format("a file with \"base\" has no \"{}\" of its own; it changes its base's, as in {}", key, example)});
  }
  BaseKeys keys;
  const std::size_t before = problems.size();
  read_object(root, {"", "", "", &file}, "a file with \"base\"", file, problems, [&](Fields& f) { keys.fields(f); });
  if (problems.size() == before && keys.base.text.empty())
    problems.push_back({file.place("/base"), "\"base\" is empty; name the file that this one changes"});
  if (const std::string why = keys.name ? bad_name(*keys.name) : ""; !why.empty()) {
    problems.push_back({file.place("/name"), why});
  }
  return !keys.base.text.empty() ? std::optional(std::move(keys)) : std::nullopt;
}

}  // namespace

Loaded load(const std::string& text, const std::string& file, const Registry& registry, const PlanOptions& options,
            std::vector<Problem>& problems) {
  Loaded loaded;
  std::vector<std::string> chain{file == kStandardInput ? file : whole_path(file)};
  std::optional<std::string> name;
  std::optional<Origin> named_by;
  std::vector<PluginFile> plugins;  // of files with "base"
  auto document = std::make_unique<Document>(text, file, problems);
  while (document->complete() && document->root().is_object() && document->root().contains("base")) {
    const std::optional<BaseKeys> keys = read_base_keys(*document, problems);
    const auto refuse = [&](const std::string& rule) {
      problems.push_back({document->place("/base"), rule});
      throw PipelineError(std::move(problems));
    };
    if (!keys) throw PipelineError(std::move(problems));
    if (!name && keys->name) {
      name = keys->name;
      named_by = Origin{"/name", "", "", document.get()};
    }
    read_plugins(keys->plugins, *document, plugins);
    const std::string& base = keys->base.text;
    const std::string whole = whole_path(base);
    if (std::find(chain.begin(), chain.end(), whole) != chain.end()) {
      refuse(fmt::format("{} stands on itself", in_quotes(base)));
    }
    if (chain.size() > kMostBases) refuse(fmt::format("more than {} files stand on each other", kMostBases));
    chain.push_back(whole);
    std::string below;
    try {
      below = read_base(base, options.bases);
    } catch (const Error& error) {
      refuse(fmt::format("the base {}", error.what()));
    }
    loaded.bases[whole] = below;
    loaded.files.push_back(std::move(document));
    document = std::make_unique<Document>(std::move(below), base, problems);
  }
  loaded.files.push_back(std::move(document));
  std::reverse(loaded.files.begin(), loaded.files.end());
  if (!loaded.nodes().complete()) throw PipelineError(std::move(problems));

  const bool whole = loaded.files.size() == 1;
  loaded.spec = read_spec(loaded.nodes(), name_of(file), problems);
  if (!loaded.nodes().root().is_object()) throw PipelineError(std::move(problems));
  loaded.spec.plugins.insert(loaded.spec.plugins.end(), plugins.begin(), plugins.end());
  if (!whole) {
    loaded.spec.name = name.value_or(name_of(file));
    loaded.spec.name_origin = named_by;
  }
  if (options.predict) {
    loaded.spec.has_evaluate = true;
    loaded.spec.evaluate = Written();
    loaded.spec.evaluate_set.clear();
  }
  loaded.types = add_plugins(loaded.spec, options, registry, problems);
  std::vector<Layer> layers;
  for (const auto& one : loaded.files) layers.push_back(read_layer(*one, one.get() == &loaded.nodes(), problems));
  layers.push_back(read_layer(options.overrides));
  apply_changes(loaded.spec, layers, loaded.nodes(), *loaded.types, problems, loaded.notes);
  return loaded;
}

std::string read_pipeline_text(const std::string& file) {
  std::ifstream opened;
  errno = 0;
  if (file != "-") opened.open(file, std::ios::binary);
  std::istream& in = file == "-" ? std::cin : opened;
  std::string text;
  char block[1 << 16];
  while (in && text.size() <= Document::kMaxBytes) {
    in.read(block, sizeof block);
    text.append(block, static_cast<std::size_t>(in.gcount()));
  }
  const bool broken = in.bad() || (file == "-" && std::ferror(stdin) != 0);
  if (broken || (!in.eof() && text.empty())) {
    throw Error(Exit::kPipeline, fmt::format("{}: cannot be read ({})", escaped(file),
                                             errno == 0 ? "it is no file" : std::generic_category().message(errno)));
  }
  return text;
}

}  // namespace lanewise
