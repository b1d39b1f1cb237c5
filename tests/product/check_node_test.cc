// check-node: types that are broken on purpose (tests/plugins/zoo.cc), each caught with the sentence that says how.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <regex>

#include "tests/product/run_command.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

const std::string kBuild = fs::absolute(std::getenv("LANEWISE")).parent_path().string();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The lines of the rules that do not hold, one below another; numbers with a point as #.
std::string broken_rules(const std::string& out) {
  std::string text;
  for (const std::string& line : lines_of(out)) {
    if (line.starts_with("  NO   ")) text += line.substr(7) + "\n";
  }
  return std::regex_replace(text, std::regex("-?[0-9]+\\.[0-9]+(e-?[0-9]+)?"), "#");
}

struct Animal {
  std::string name, broken;
};

const std::string kSaved = "goes on from a saved state bit for bit",
                  kSavedEvaluating = "goes on from a saved state bit for bit, in an evaluation, too",
                  kSkip = "drops as many samples as it is told to skip: ",
                  kUnchanged = "changes nothing of what it was handed, and nothing of what it has sent: ",
                  kShares = "shares nothing with another node of its type: ";

const std::vector<Animal>& zoo() {
  static const std::vector<Animal> animals = {
      {"halves", "sends the shapes that it told, in the run's dtype: x is [1], and it told [2]\n"},
      {"doubles", "sends the shapes that it told, in the run's dtype: x is Double in a run of Float\n"},
      {"writes", kShares + "they differ from firing 0 on\n" + kSaved +
                     ": saved after 0 firings and restored, they differ from firing 0 on\n" + kSavedEvaluating +
                     ": saved after 0 firings and restored, they differ from firing 0 on\n" + kUnchanged +
                     "a sample that it was handed has changed\n"},
      {"reuses", kUnchanged + "what it sent in firing 0 has changed since\n"},
      {"forgets", kSaved + ": saved after 1 firings and restored, they differ from firing 0 on\n" + kSavedEvaluating +
                      ": saved after 1 firings and restored, they differ from firing 0 on\n" + kSkip +
                      "after 3 dropped ones it sent run 0 seq 20 where another one was due\n"},
      {"hoards",
       "keeps a bounded number of samples and a bounded state: it keeps 60 samples after 60 and 120 after 120\n"},
      {"clock", "gives the same for the same seed, also a second later: they differ from firing 0 on\n"},
      {"shares", kShares + "they differ from firing 1 on\n" + kSaved +
                     ": saved after 1 firings and restored, they differ from firing 0 on\n" + kSavedEvaluating +
                     ": saved after 1 firings and restored, they differ from firing 0 on\n" + kSkip +
                     "after 3 dropped ones it sent run 0 seq 20 where another one was due\n"},
      {"drops_end", "ends once, when its stream does: its stream ended, and it did not pass the end on\n"},
      {"ends_twice", "ends once, when its stream does: it sent something together with the end\n"},
      {"repeats", "numbers what it sends from 0, without a gap: seq 6 came where 7 was due\n"},
      {"loses",
       "sends, absorbs or holds each sample that it was given: of 40 firings 11 sent or absorbed something, and 0 are "
       "held\n" +
           kSkip + "after 3 dropped ones it sent run 0 seq 14 where nothing was due\n"},
      {"no_skip", kSkip + "it says that it cannot; a run with it is not resumed exactly\n"},
      {"throws", "tells before a run what it will send, and can be made: it threw: no licence\n"},
      {"bad_default",
       "takes its own defaults, and what has none must be given: a default is refused: bad_default: \"share\" must be "
       "between 0 and 1, not #\n"},
      {"no_help",
       "tells what it is, with a help text for itself and each parameter: the parameter share has no help\n"},
      {"tells_nothing",
       "tells before a run what it will send, and can be made: it tells no shape, though that of its input is known\n"},
      {"short_source",
       "ends once, when its stream does: it sent 4 samples and told 5\n"
       "sends fillers of weight 0 after its end under `mask`: sample 4 of 5 is a filler\n"},
      {"mixes_rows",
       "treats each row by itself: for samples x [3], row 0 among 4 rows: # instead of 0, as it is alone\n"},
      {"detaches",
       "has the gradients that finite differences give: for samples x [3], the slope along element 0 of bias is #, and "
       "its gradient says #\n"},
      {"loses_state",
       "computes in one call of several steps what several calls of one do: for samples x [3], step 1 of 3 at once: # "
       "instead of #, as it is step by step\n"},
      {"writes_state",
       "changes nothing of its input: for samples x [3], the state that it was handed has changed in its place\n"},
      {"summed", "is a mean over a row's elements, not a sum: with every element twice, it gives: # instead of #\n"},
      {"batch_mean", "treats each row by itself: row 1: # instead of # once row 0 is another\n"},
      {"no_gradient",
       "has the gradient that finite differences give: the slope along element 0 of the prediction is #, and its "
       "gradient says #\n"},
      {"one_value",
       "gives one value a row: it gives [] instead of [2, 3]\n"
       "treats each row by itself: LibTorch threw: select() cannot be applied to a 0-dim tensor.\n"},
      {"wrong_row", "computes without autograd what it computes with it: the gradient of row 0: # instead of #\n"}};
  return animals;
}

Finished check_node(const std::string& type) {
  return lanewise_command({"check-node", type, "--plugin", kBuild + "/libzoo.so"});
}

TEST_CASE("check-node: each broken type is caught, with what was seen") {
  for (const Animal& animal : zoo()) {
    CAPTURE(animal.name);
    const Finished finished = check_node(animal.name);
    CHECK(finished.exit == 70);
    CHECK(finished.err == "");
    CHECK(broken_rules(finished.out) == animal.broken);
  }
}

TEST_CASE("check-node: a model that remembers its calls is caught by all that call it twice") {
  const std::string broken = broken_rules(check_node("remembers").out);
  CHECK(
      contains(broken, "gives the same for the same samples, whatever came between: for samples x [3], called again"));
  CHECK(lines_of(broken).size() == 4);
}

TEST_CASE("check-node: no type of the zoo is left out") {
  const auto all = nlohmann::json::parse(lanewise_command({"nodes", "--plugin", kBuild + "/libzoo.so", "--json"}).out);
  CHECK(all.size() == zoo().size() + 6);  // remembers, and those that follow
}

TEST_CASE(
    "check-node: a type that ends its process, or does not come back, is told with the rule that it was tried by") {
  const std::string tried = " while this was tried: sends the shapes that it told, in the run's dtype\n";
  const std::vector<std::pair<std::string, std::string>> cases = {{"quits", "has left with status 0"},
                                                                  {"crashes", "was killed by signal 6 (SIGABRT)"},
                                                                  {"hangs", "has not come back in 1 s"}};
  for (const auto& [type, what] : cases) {
    const Finished finished =
        lanewise_command({"check-node", type, "--plugin", kBuild + "/libzoo.so", "--timeout", "1"});
    CHECK(finished.exit == 70);
    CHECK(finished.err == "error: " + type + ": the process that it is tried in " + what + tried);
  }
  CHECK(contains(broken_rules(check_node("throws_number").out),
                 "sends the shapes that it told, in the run's dtype: it threw something that is no exception\n"));
}

TEST_CASE("check-node: what a type prints is not among what the command prints") {
  const Finished finished = lanewise_command({"check-node", "prints", "--plugin", kBuild + "/libzoo.so", "--json"});
  CHECK(finished.exit == 0);
  CHECK(nlohmann::json::parse(finished.out)[0]["holds"] == true);
  CHECK(contains(finished.err, "a sample has come\n"));
}

TEST_CASE("check-node: a type that keeps to the rules is exit 0, in text and JSON") {
  const Finished finished = lanewise_command({"check-node", "window", "--set", "length=3"});
  CHECK(finished.exit == 0);
  CHECK(std::regex_replace(finished.out, std::regex("[0-9.]+ µs"), "1 µs") ==
        "window (per-sample)\n"
        "  yes  has ports that suit its role, and makes nodes\n"
        "  yes  tells what it is, with a help text for itself and each parameter\n"
        "  yes  takes its own defaults, and what has none must be given\n"
        "  yes  refuses a wrong type, a value out of bounds and an unknown name\n"
        "  yes  tells before a run what it will send, and can be made\n"
        "  yes  sends the shapes that it told, in the run's dtype\n"
        "  yes  numbers what it sends from 0, without a gap\n"
        "  yes  sends, absorbs or holds each sample that it was given\n"
        "  yes  ends once, when its stream does\n"
        "  yes  gives the same for the same seed, also a second later\n"
        "  yes  shares nothing with another node of its type\n"
        "  yes  goes on from a saved state bit for bit\n"
        "  yes  goes on from a saved state bit for bit, in an evaluation, too\n"
        "  yes  drops as many samples as it is told to skip\n"
        "  yes  changes nothing of what it was handed, and nothing of what it has sent\n"
        "  yes  keeps a bounded number of samples and a bounded state\n"
        "16 of 16 rules hold; it takes 1 µs a firing\n");
  CHECK(lanewise_command({"check-node", "torchscript", "--set", "path=net.pt"})
            .out.find(
                "3 of 3 rules hold; the rest is the file's, which only a run opens and tries out before step 0\n") !=
        std::string::npos);
  CHECK(lanewise_command({"check-node", "compute", "--set", "model=net"})
            .out.ends_with("4 of 4 rules hold; the rest shows in a whole pipeline only\n"));
  const auto json = nlohmann::json::parse(lanewise_command({"check-node", "mse", "--json"}).out);
  CHECK(json[0]["type"] == "mse (loss)");
  CHECK(json[0]["holds"] == true);
  CHECK(json[0]["rules"].size() == 10);
}

TEST_CASE("check-node: every built-in type passes through the command") {
  for (const auto& type : nlohmann::json::parse(lanewise_command({"nodes", "--json"}).out)) {
    const std::string name = type["name"];
    std::vector<std::string> arguments = {"check-node", name};
    const auto set = [&](const std::string& text) { arguments.insert(arguments.end(), {"--set", text}); };
    if (name == "compute") set("model=net");
    if (name == "torchscript") set("path=net.pt");
    if (name == "csv") {
      set("path=configs/data/flights16/OO.csv");
      set("features=[\"temp\"]");
      set("target=[\"dep_delay\"]");
    }
    if (name == "process") {
      set("command=[\".venv/bin/python\", \"tests/evil_generator.py\"]");
      set("x=[2]");
      set("y=[1]");
    }
    CAPTURE(name);
    const Finished finished = lanewise_command(arguments);
    CHECK(finished.exit == 0);
    CHECK(broken_rules(finished.out + finished.err) == "");
  }
}

TEST_CASE("check-node: what cannot be tried is exit 2, with what to give") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"check-node"}, "error: lanewise check-node needs a type, such as window; see `lanewise check-node --help`\n"},
      {{"check-node", "windo"},
       "error: there is no node type, model or loss \"windo\"; did you mean \"window\"?; `lanewise nodes` lists them "
       "all\n"},
      {{"check-node", "mse", "--set", "nonsense=1"},
       "error: mse has no parameter \"nonsense\"; it has none; --set PARAMETER=VALUE gives parameters\n"},
      {{"check-node", "csv"}, "error: csv needs the parameter \"path\"; --set PARAMETER=VALUE gives parameters\n"},
      {{"check-node", "window", "--set", "length=0"},
       "error: window: \"length\" must be between 1 and 1048576, not 0; --set PARAMETER=VALUE gives parameters\n"},
      {{"check-node", "window", "--set", "length"}, "error: --set length: write it as PARAMETER=VALUE\n"}};
  for (const auto& [arguments, message] : cases) {
    const Finished finished = lanewise_command(arguments);
    CHECK(finished.exit == 2);
    CHECK(finished.err == message);
  }
}

}  // namespace
}  // namespace lanewise
