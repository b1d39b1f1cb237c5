// Plugins where nothing of them is loaded: files that look like one, and the descriptors beside them.
#include "graph/plugins.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "graph/sha256.h"
#include "graph/spec.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStamp = "lanewise: 1.2.3\nLibTorch: 2.11.0\n";

// What the library that a plugin is begins and ends with does not matter here.
std::string library(const std::string& stamp = kStamp) {
  return "\x7f"
         "ELF…" LANEWISE_PLUGIN_MARK +
         stamp + std::string("\0…", 4);
}

constexpr const char* kDescriptors = R"([
  { "kind": "node type", "name": "spike", "help": "adds one", "role": "per-sample", "shapes": "same",
    "inputs": [ { "name": "sample", "carries": "sample" } ], "outputs": [ { "name": "sample", "carries": "sample" } ],
    "parameters": [ { "name": "height", "type": "number", "help": "of it", "default": 1.0, "above": 0.0 } ] },
  { "kind": "node type", "name": "blank", "help": "unlike", "inputs": [ { "name": "sample", "carries": "sample" } ],
    "outputs": [ { "name": "sample", "carries": "sample" } ] } ])";

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "lanewise-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  Folder(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void write_plugin(const std::string& name, const std::string& descriptors = kDescriptors) const {
    write("lib" + name + ".so", library());
    write(name + ".json", descriptors);
  }
  // A text with this folder as "DIR".
  std::string masked(std::string text) const {
    for (std::size_t at; (at = text.find(path_)) != std::string::npos;) text.replace(at, path_.size(), "DIR");
    return text;
  }

 private:
  std::string path_;
};

Registry registry() {
  Registry registry = test_registry();
  registry.plugin_stamp = kStamp;
  return registry;
}

std::string pipeline(const std::string& plugins, const std::string& node = "\"spike\"") {
  return "{ \"plugins\": " + plugins + R"(,
  "nodes": [
    { "id": "gen", "type": "count" },
    { "id": "mine", "type": )" +
         node + R"(, "in": [ { "from": "gen" } ] },
    { "id": "norm", "type": "scale", "in": [ { "from": "mine" } ] } ],
  "run": { "steps": 5 } })";
}

Plans plan(const Folder& folder, const std::string& text, const PlanOptions& options = {}) {
  return plan_pipeline(text, folder.path("mine.json"), registry(), options);
}

std::string refusal(const Folder& folder, const std::string& text, const PlanOptions& options = {}) {
  try {
    plan(folder, text, options);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::kPipeline);
    return folder.masked(error.what());
  }
  return "accepted";
}

TEST_CASE("plugins: a pipeline names types of plugins beside it, whose files are hashed into the plan") {
  const Folder folder;
  folder.write_plugin("spike");
  const Plans plans = plan(folder, pipeline("[\"libspike.so\"]"));
  const PlanNode& mine = *plans.train.find("mine");
  CHECK(mine.type->plugin == "libspike.so");
  CHECK(mine.params.dump() == "{\"height\":1.0}");
  CHECK(mine.signatures[0].text() == "x [4], y [1]");
  CHECK(plans.train.expanded["plugins"].dump() == "{\"libspike.so\":\"" + sha256_hex(library()) + "\"}");
  CHECK(test_registry().find_node("spike") == nullptr);

  folder.write("libspike.so", library() + "built again");
  CHECK(plan(folder, pipeline("[\"libspike.so\"]")).train.digest != plans.train.digest);
}

TEST_CASE("plugins: what a descriptor does not tell is unknown until run, and the streams are known") {
  const Folder folder;
  folder.write_plugin("spike");
  const Plans plans = plan(folder, pipeline("[\"libspike.so\"]", "\"blank\""));
  CHECK(plans.train.find("mine")->signatures[0].text() == "unknown until run");
  CHECK(plans.train.find("norm")->signatures[0].streams == std::vector<std::string>{"gen"});
}

TEST_CASE("plugins: the command line names some, too, and one that is named twice is one") {
  const Folder folder;
  folder.write_plugin("spike");
  PlanOptions options;
  options.overrides = {{Override::Kind::kPlugin, folder.path("libspike.so")}, {Override::Kind::kSet, "mine.height=2"}};
  const Plans plans = plan(folder, pipeline("[]"), options);
  CHECK(plans.train.find("mine")->params.dump() == "{\"height\":2.0}");
  CHECK(plan(folder, pipeline("[\"libspike.so\"]"), options).train.expanded["plugins"].size() == 1);
}

TEST_CASE("plugins: parameters, bounds and names of their types are looked at like any other") {
  const Folder folder;
  folder.write_plugin("spike");
  CHECK(refusal(folder, pipeline("[\"libspike.so\"]", "\"spike\", \"params\": { \"hieght\": 1, \"height\": 0 }")) ==
        "DIR/mine.json:4:50  /nodes/1/params/hieght\n"
        "  spike has no parameter \"hieght\"; did you mean \"height\"?\n"
        "DIR/mine.json:4:63  /nodes/1/params/height\n"
        "  spike: \"height\" must be above 0, not 0\n"
        "2 problems; nothing was started");
  CHECK(refusal(folder, pipeline("[\"libspike.so\"]", "\"spyke\"")) ==
        "DIR/mine.json:4:21  /nodes/1/type\n"
        "  no node type is named \"spyke\"; did you mean \"spike\"?\n"
        "1 problem; nothing was started");
}

TEST_CASE("plugins: each that cannot be used is refused where it is named, all at once") {
  const Folder folder;
  folder.write("libold.so", library("lanewise: 1.2.2\nLibTorch: 2.9.1\n"));
  folder.write("libpart.so", library("lanewise: 1.2.3\n"));
  folder.write("libplain.so",
               "\x7f"
               "ELF and nothing else");
  folder.write("libtext.so", "#!/bin/sh\n");
  folder.write("libtold.so", library());
  folder.write_plugin("spike");
  folder.write_plugin("taken", R"([ { "kind": "model", "name": "mlp", "help": "mine" } ])");
  folder.write_plugin("again");
  folder.write_plugin("words", R"([ { "kind": "loss", "name": "my loss", "help": "mine" } ])");
  folder.write_plugin("steps", R"([ { "kind": "node type", "name": "step", "help": "mine", "role": "optimizer" } ])");
  folder.write_plugin("broken", "[ 5 ]");
  fs::create_directory(folder.path("libfolder.so"));
  CHECK(
      refusal(folder, pipeline(R"([ "libnone.so", "libfolder.so",
  "libtext.so", "libplain.so",
  "libold.so", "libpart.so",
  "libtold.so", "libspike.so",
  "libtaken.so", "libagain.so",
  "libwords.so", "libsteps.so",
  "libbroken.so" ])")) ==
      "DIR/mine.json:1:16  /plugins/0\n"
      "  the plugin \"libnone.so\" is not there; build it, and name the library that comes of it\n"
      "DIR/mine.json:1:30  /plugins/1\n"
      "  the plugin \"libfolder.so\" is no regular file; build it, and name the library that comes of it\n"
      "DIR/mine.json:2:3  /plugins/2\n"
      "  the plugin \"libtext.so\" is no library; name the lib….so that its build has made\n"
      "DIR/mine.json:2:17  /plugins/3\n"
      "  the plugin \"libplain.so\" is a library, but no plugin of lanewise; it needs a LANEWISE_PLUGIN "
      "(lanewise/nodes/plugin.h)\n"
      "DIR/mine.json:3:3  /plugins/4\n"
      "  the plugin \"libold.so\" was built for another lanewise: its lanewise is 1.2.2, and this lanewise has 1.2.3; "
      "its LibTorch is 2.9.1, and this lanewise has 2.11.0; build it again with the package of this one\n"
      "DIR/mine.json:3:16  /plugins/5\n"
      "  the plugin \"libpart.so\" was built for another lanewise: its LibTorch is none, and this lanewise has 2.11.0; "
      "build it again with the package of this one\n"
      "DIR/mine.json:4:3  /plugins/6\n"
      "  the plugin \"libtold.so\" is told by DIR/told.json, which is not there; write it by `lanewise nodes --plugin "
      "DIR/libtold.so --json > DIR/told.json`, which loads the plugin\n"
      "DIR/mine.json:5:3  /plugins/8\n"
      "  the plugin \"libtaken.so\" has a model \"mlp\", and that name is taken: it is built in; give it another name\n"
      "DIR/mine.json:5:18  /plugins/9\n"
      "  the plugin \"libagain.so\" has a node type \"spike\", and that name is taken: it is one of \"libspike.so\"; "
      "give "
      "it another name\n"
      "DIR/mine.json:6:3  /plugins/10\n"
      "  the plugin \"libwords.so\" names a loss \"my loss\"; a name is made of letters, digits and _, at most 64\n"
      "DIR/mine.json:6:18  /plugins/11\n"
      "  the plugin \"libsteps.so\" has a node type \"step\" of the role optimizer; plugins bring sources, per-sample "
      "nodes, joins and sinks\n"
      "DIR/broken.json:1:3  /0\n"
      "  type must be an object, not 5\n"
      "12 problems; nothing was started");
}

TEST_CASE("plugins: one that is loaded must be what its descriptors say") {
  const Folder folder;
  folder.write_plugin("spike");
  Registry loading = registry();
  int loads = 0;
  std::string library_says = kDescriptors;
  loading.load_plugin = [&](const PluginFile& file) {
    ++loads;
    std::vector<Problem> problems;
    CHECK(file.sha256 == sha256_hex(library()));
    return read_descriptors(library_says, "library", problems);
  };
  const auto load = [&] { return plan_pipeline(pipeline("[\"libspike.so\"]"), folder.path("mine.json"), loading, {}); };
  CHECK(load().train.find("mine")->type->name == "spike");
  CHECK(loads == 1);

  library_says.replace(library_says.find("adds one"), 8, "adds two");
  try {
    load();
    FAIL("it was accepted");
  } catch (const PipelineError& error) {
    CHECK(folder.masked(error.what()) ==
          "DIR/mine.json:1:15  /plugins/0\n"
          "  the plugin \"libspike.so\" is not what DIR/spike.json says of it (file -> library):\n"
          "    node type spike.help: \"adds one\" -> \"adds two\"\n"
          "    write the file anew by `lanewise nodes --plugin DIR/libspike.so --json > DIR/spike.json`\n"
          "1 problem; nothing was started");
  }
}

TEST_CASE("plugins: nothing is loaded of one whose descriptors already do not fit") {
  const Folder folder;
  folder.write_plugin("taken", R"([ { "kind": "model", "name": "mlp", "help": "mine" } ])");
  Registry loading = registry();
  loading.load_plugin = [](const PluginFile&) -> Types { throw std::logic_error("it was loaded"); };
  CHECK_THROWS_AS(plan_pipeline(pipeline("[\"libtaken.so\"]"), folder.path("mine.json"), loading, {}), PipelineError);
}

}  // namespace
}  // namespace lanewise
