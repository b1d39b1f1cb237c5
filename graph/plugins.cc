#include "graph/plugins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "graph/sha256.h"
#include "graph/text.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;
constexpr std::size_t kMostName = 64, kDifferencesShown = 5;

[[noreturn]] void refuse(const PluginFile& file, const std::string& why) {
  throw Error(Exit::kPipeline, fmt::format("the plugin {} {}", in_quotes(file.written), why));
}

// A whole file; only a regular one is read. `why_not`: set when it cannot be.
std::string read_whole(const std::string& path, std::string& why_not) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return why_not = "is not there", "";
  if (!fs::is_regular_file(status)) return why_not = "is no regular file", "";
  if (fs::file_size(path, error) > kMostBytes) return why_not = "is larger than any plugin", "";
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    why_not = fmt::format("cannot be read ({})", std::generic_category().message(errno == 0 ? EIO : errno));
  return text;
}

// The "key: value" of each line.
std::vector<std::pair<std::string, std::string>> lines_of(std::string_view stamp) {
  std::vector<std::pair<std::string, std::string>> lines;
  while (!stamp.empty()) {
    const std::string_view line = stamp.substr(0, stamp.find('\n'));
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos) lines.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    stamp.remove_prefix(std::min(stamp.size(), line.size() + 1));
  }
  return lines;
}

bool is_word(const std::string& name) {
  const auto fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kMostName && std::ranges::all_of(name, fit);
}

template <class T>
void add_each(std::vector<T>& table, std::vector<T> types, const std::string& kind, const PluginFile& file) {
  for (T& type : types) {
    if (!is_word(type.name)) {
      refuse(file, fmt::format("names a {} {}; a name is made of letters, digits and _, at most {}", kind,
                               in_quotes(type.name), kMostName));
    }
    if (const auto other = std::ranges::find(table, type.name, &T::name); other != table.end()) {
      refuse(file,
             fmt::format("has a {} {}, and that name is taken: {}; give it another name", kind, in_quotes(type.name),
                         other->plugin.empty()           ? "it is built in"
                         : other->plugin == file.written ? "this plugin has it twice"
                                                         : "it is one of " + in_quotes(other->plugin)));
    }
    type.plugin = file.written;
    table.push_back(std::move(type));
  }
}

// What the file beside the library tells; its own problems have their places in it.
Types described(const PluginFile& file, std::vector<Problem>& problems) {
  const std::string path = descriptor_path(file.path);
  std::string why_not;
  const std::string text = read_whole(path, why_not);
  if (!why_not.empty()) {
    refuse(file,
           fmt::format("is told by {}, which {}; write it by `lanewise nodes --plugin {} --json > {}`, which loads "
                       "the plugin",
                       escaped(path), why_not, escaped(file.path), escaped(path)));
  }
  return read_descriptors(text, path, problems);
}

void add_plugin(Registry& registry, PluginFile& file, std::vector<Problem>& problems) {
  examine_plugin(file, registry.plugin_stamp);
  const std::size_t before = problems.size();
  Types types = described(file, problems);
  if (problems.size() != before) return;
  if (!registry.load_plugin) return add_types(registry, std::move(types), file);
  const nlohmann::json descriptors = descriptors_of(types);
  Registry trial = registry;  // names are looked at before anything of it is loaded
  add_types(trial, std::move(types), file);
  Types loaded = registry.load_plugin(file);
  std::vector<std::string> lines = descriptor_differences(descriptors, descriptors_of(loaded));
  if (!lines.empty()) {
    const std::string path = descriptor_path(file.path);
    if (lines.size() > kDifferencesShown) lines.resize(kDifferencesShown);
    refuse(file,
           fmt::format("is not what {} says of it (file -> library):\n  {}\n  write the file anew by `lanewise nodes "
                       "--plugin {} --json > {}`",
                       escaped(path), fmt::join(lines, "\n  "), escaped(file.path), escaped(path)));
  }
  add_types(registry, std::move(loaded), file);
}

}  // namespace

PluginFile plugin_file(const std::string& written, const std::string& folder, const Place& place) {
  return {written, (fs::path(folder) / written).string(), place};
}

std::string descriptor_path(const std::string& library) {
  const fs::path path(library);
  std::string stem = path.stem().string();
  if (stem.starts_with("lib")) stem.erase(0, 3);
  return (path.parent_path() / (stem + ".json")).string();
}

void examine_plugin(PluginFile& file, const std::string& stamp) {
  std::string why_not;
  const std::string bytes = read_whole(file.path, why_not);
  if (!why_not.empty()) refuse(file, why_not + "; build it, and name the library that comes of it");
  file.sha256 = sha256_hex(bytes);
  if (!bytes.starts_with("\x7f"
                         "ELF"))
    refuse(file, "is no library; name the lib….so that its build has made");
  const std::string_view mark = LANEWISE_PLUGIN_MARK;
  const std::size_t at = bytes.find(mark);
  if (at == std::string::npos)
    refuse(file, "is a library, but no plugin of lanewise; it needs a LANEWISE_PLUGIN (lanewise/nodes/plugin.h)");
  const auto says = lines_of(std::string_view(bytes).substr(at + mark.size(), bytes.find('\0', at) - at - mark.size()));
  std::vector<std::string> differences;
  for (const auto& [key, value] : lines_of(stamp)) {
    const auto it = std::ranges::find(says, key, &std::pair<std::string, std::string>::first);
    const std::string its = it == says.end() ? "none" : it->second;
    if (its != value)
      differences.push_back(fmt::format("{} is {}, and this lanewise has {}", key, escaped(its), value));
  }
  if (!differences.empty()) {
    refuse(file, fmt::format("was built for another lanewise: its {}; build it again with the package of this one",
                             fmt::join(differences, "; its ")));
  }
}

void add_types(Registry& registry, Types types, const PluginFile& file) {
  for (const NodeType& type : types.nodes) {
    const bool one_of_a_kind =
        type.role == Role::kCompute || type.role == Role::kReduce || type.role == Role::kOptimizer;
    if (one_of_a_kind) {
      refuse(file,
             fmt::format("has a node type {} of the role {}; plugins bring sources, per-sample nodes, joins and sinks",
                         in_quotes(type.name), to_string(type.role)));
    }
  }
  add_each(registry.nodes, std::move(types.nodes), "node type", file);
  add_each(registry.models, std::move(types.models), "model", file);
  add_each(registry.losses, std::move(types.losses), "loss", file);
  if (registry.complete) registry.complete(registry);
}

std::shared_ptr<const Registry> with_plugins(const Registry& base, std::vector<PluginFile>& plugins, bool load,
                                             std::vector<Problem>& problems) {
  if (plugins.empty()) return {std::shared_ptr<void>(), &base};
  auto registry = std::make_shared<Registry>(base);
  if (!load) registry->load_plugin = nullptr;
  std::vector<PluginFile> all = std::move(plugins);
  plugins.clear();
  for (PluginFile& file : all) {
    try {
      std::error_code error;
      const auto same = [&](const PluginFile& other) { return fs::equivalent(other.path, file.path, error); };
      if (std::ranges::any_of(plugins, same)) continue;
      add_plugin(*registry, file, problems);
    } catch (const Error& error) {
      if (error.exit() != Exit::kPipeline) throw;
      problems.push_back({file.place, error.what()});
    }
    plugins.push_back(std::move(file));
  }
  return registry;
}

}  // namespace lanewise
