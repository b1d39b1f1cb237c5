// How runs end: by steps, passes, time, the end of a stream, a signal, an error; and what then is left of every sample.
#include <atomic>

#include "nodes/node_type.h"
#include "tests/check.h"
#include "tests/pipeline.h"

using namespace lanewise;

namespace {

// produced = trained + fillers + absorbed + left for every stream of a report.
void check_accounts(const nlohmann::ordered_json& report) {
  for (const auto& [stream, a] : report["samples"].items()) {
    CAPTURE(stream);
    CHECK(a["produced"].get<int>() ==
          a["trained"].get<int>() + a["fillers"].get<int>() + a["absorbed"].get<int>() + a["left"].get<int>());
  }
}

void check_bounds(const nlohmann::ordered_json& report) {
  for (const auto& edge : report["edges"]) CHECK(edge["deepest"].get<int>() <= edge["capacity"].get<int>());
  CHECK(report["in_flight"]["deepest"].get<int>() <= report["in_flight"]["bound"].get<int>());
}

// Sixteen streams of 100 samples, stream 5 of 60.
Topology uneven() {
  Topology t;
  t.source =
      R"("type": "ar1", "params": { "features": 6 }, "each": { "samples": [100,100,100,100,100,60,100,100,100,100,100,100,100,100,100,100] })";
  t.run = R"("steps": 1000, "seed": 7)";
  return t;
}

}  // namespace

TEST_CASE("a run: under on_end first it ends with the shortest stream, names it, and counts what is unused") {
  const Ran ran = train(uneven().text());
  CHECK(ran.exit() == 0);
  CHECK(ran.reason() == "stream gen5 ended after 60 samples");
  CHECK(ran.report["steps"] == 60);
  CHECK(ran.losses().size() == 60);
  for (const auto& [stream, a] : ran.report["samples"].items()) {
    CHECK(a["trained"] == 60);
    CHECK((stream == "gen5") == (a["left"] == 0));
  }
  check_accounts(ran.report);
  check_bounds(ran.report);
}

TEST_CASE("a run: under on_end mask an ended stream drops out, and the mean is over the rows that are there") {
  Topology t = uneven();
  t.run = R"("steps": 1000, "seed": 7, "on_end": "mask")";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 0);
  CHECK(ran.reason() == "every stream has ended");
  CHECK(ran.report["steps"] == 100);
  CHECK(ran.report["samples"]["gen5"]["trained"] == 60);
  CHECK(ran.report["samples"]["gen4"]["trained"] == 100);
  check_accounts(ran.report);
  std::vector<nlohmann::json> lines;
  for (std::size_t begin = 0; begin < ran.metrics.size();) {
    const std::size_t end = ran.metrics.find('\n', begin);
    lines.push_back(nlohmann::json::parse(ran.metrics.substr(begin, end - begin)));
    begin = end + 1;
  }
  CHECK(lines[59]["n"] == 16);
  CHECK(lines[60]["n"] == 15);
  CHECK(lines[60]["streams"][5].is_null());
  CHECK(lines[60]["lanes"][2] == lines[60]["streams"][4]);
}

TEST_CASE("a run: under on_end error the end of a stream is an error that names it, after all steps before it") {
  const Ran ran = train(uneven().text(), {"run.on_end=error"});
  CHECK(ran.exit() == 4);
  CHECK(ran.reason() == "stream gen5 ended after 60 samples, and its end is an error (on_end)");
  CHECK(ran.report["steps"] == 60);
  CHECK(ran.losses().size() == 60);
  check_accounts(ran.report);
}

TEST_CASE("a run: a source's own on_end goes before the run's") {
  // gen5 begins again, gen4 drops out, and the first end of another ends the run.
  const Ran mixed = train(uneven().text(), {"gen5.on_end=restart", "gen4.samples=50", "gen4.on_end=mask"});
  CHECK(mixed.exit() == 0);
  CHECK(mixed.reason() == "stream gen0 ended after 100 samples");
  CHECK(mixed.report["steps"] == 100);
  CHECK(mixed.report["samples"]["gen5"]["trained"] == 100);
  CHECK(mixed.report["samples"]["gen4"]["trained"] == 50);
  CHECK(mixed.report["samples"]["gen4"]["fillers"] == 50);
  check_accounts(mixed.report);
  // Beside streams that drop out, one that restarts does not hold up the end.
  const Ran masked = train(uneven().text(), {"run.on_end=mask", "gen5.on_end=restart"});
  CHECK(masked.exit() == 0);
  CHECK(masked.reason() == "every stream has ended");
  CHECK(masked.report["steps"] == 100);
  const Ran error = train(uneven().text(), {"run.on_end=mask", "gen5.on_end=error"});
  CHECK(error.exit() == 4);
  CHECK(error.report["steps"] == 60);
}

TEST_CASE("a run: passes read every stream as often, shorter ones again meanwhile") {
  Topology t = uneven();
  t.run = R"("passes": 2, "seed": 7)";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 0);
  CHECK(ran.reason() == "every stream was read 2 times");
  CHECK(ran.report["steps"] == 200);
  for (const auto& [stream, a] : ran.report["samples"].items()) CHECK(a["trained"] == 200);
  check_accounts(ran.report);
}

TEST_CASE("a run: steps, minutes and a signal end it after a whole round") {
  const Ran steps = train(Topology{}.text());
  CHECK(steps.exit() == 0);
  CHECK(steps.reason() == "all 20 steps are done");
  check_accounts(steps.report);
  check_bounds(steps.report);

  Topology t;
  t.run = R"("minutes": 0.005, "seed": 7)";
  const Ran minutes = train(t.text());
  CHECK(minutes.exit() == 0);
  CHECK(minutes.reason() == "0.005 minutes are over");
  CHECK(minutes.report["steps"].get<int>() > 0);
  check_accounts(minutes.report);

  t.run = R"("steps": 1000000, "seed": 7)";
  std::atomic<int> asked = 0;
  const Ran signal = train(t.text(), {}, test_registry(), [&] { return ++asked > 400 ? 15 : 0; });
  CHECK(signal.exit() == 11);
  CHECK(signal.reason().starts_with("stopped by SIGTERM after step "));
  CHECK(signal.report["steps"].get<std::size_t>() == signal.losses().size());
  CHECK(signal.files.contains("weights.safetensors"));
  check_accounts(signal.report);
}

TEST_CASE("a run: an exception in any kind of node ends it with the node and the firing, and the report is complete") {
  Topology t;
  t.chain =
      R"( { "id": "win", "repeat": 16, "type": "window", "in": [ { "from": "gen", "take": 1 } ], "params": { "length": 2 } },)";
  t.last = "win";
  t.extra = R"(, { "id": "tap", "type": "metrics", "in": [ { "from": "opt.step" } ] })";
  class Thrower final : public Node {
   public:
    explicit Thrower(std::unique_ptr<Node> node) : node_(std::move(node)) {}
    void fire(Firing& firing) override {
      if (firing.index() == 4) throw Error(Exit::kData, "planted");
      node_->fire(firing);
    }
    Packet initial(std::size_t port) override { return node_->initial(port); }

   private:
    const std::unique_ptr<Node> node_;
  };
  for (const std::string victim : {"ar1", "window", "pair", "compute", "allreduce", "optimizer", "metrics"}) {
    CAPTURE(victim);
    Registry registry = test_registry();
    for (NodeType& type : registry.nodes) {
      if (type.name != victim) continue;
      type.make = [make = type.make](const NodeContext& c) -> std::unique_ptr<Node> {
        return std::make_unique<Thrower>(make(c));
      };
    }
    const Ran ran = train(t.text(), {}, registry);
    CHECK(ran.exit() == 4);
    CHECK(ran.reason().find("(" + victim + "), firing 4: planted") != std::string::npos);
    CHECK(nlohmann::json::parse(ran.files.at("report.json"))["reason"] == ran.reason());
    CHECK(ran.report["steps"].get<std::size_t>() == ran.losses().size());
  }
}

TEST_CASE("a run: a value that is not finite stops it before anything is applied, naming lane, streams and seqs") {
  Topology t;
  t.chain =
      R"( { "id": "bad", "repeat": 16, "type": "fault", "in": [ { "from": "gen", "take": 1 } ], "params": { "kind": "nan" }, "each": { "at": [99,99,99,99,99,99,99,99,99,99,99,2,99,99,99,99] } },)";
  t.last = "bad";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 10);
  CHECK(ran.report["steps"] == 2);
  CHECK(ran.reason().starts_with("opt (optimizer), firing 2: step 3: the loss or the gradient is not finite\n  lane5"));
  CHECK(ran.reason().find("lane5 (cpu:5): loss nan; stream gen10, run 0, seq 2") != std::string::npos);
  CHECK(ran.reason().find("stream gen11, run 0, seq 2, loss nan") != std::string::npos);
  CHECK(ran.reason().find("lane4") == std::string::npos);
}

TEST_CASE("a run: a stall says who waits for whom and exits 7") {
  Topology t;
  t.source = R"("type": "ar1", "params": { "features": 6, "samples": 50 })";
  t.chain =
      R"( { "id": "bad", "repeat": 16, "type": "fault", "in": [ { "from": "gen", "take": 1 } ], "params": { "kind": "stall" }, "each": { "at": [99,99,99,3,99,99,99,99,99,99,99,99,99,99,99,99] } },)";
  t.last = "bad";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 7);
  CHECK(ran.reason().find("pair1 waits for bad3") != std::string::npos);
  CHECK(ran.report["steps"] == 3);
}

TEST_CASE("a run: behind a slow lane, samples of 64 KiB wait within the bound and memory stays flat") {
  Topology t;
  t.source = R"("type": "constant", "params": { "features": 16384 })";
  t.model = R"("type": "linear")";
  t.capacity = 4;
  t.chain =
      R"( { "id": "slow", "repeat": 16, "type": "window", "in": [ { "from": "gen", "take": 1, "capacity": 4 } ], "params": { "length": 1 } },)";
  t.last = "slow";
  t.optimizer = R"("name": "sgd", "lr": 1e-6)";
  const auto rss = [] {
    const std::string statm = read_text("/proc/self/statm");
    return std::stol(statm.substr(statm.find(' ') + 1)) * 4096;
  };
  std::atomic<long> early = 0, late = 0;
  std::atomic<int> asked = 0;
  const Ran ran = train(t.text(), {"run.steps=1600"}, test_registry(), [&] {
    const int k = ++asked;
    if (k == 8 * 400) early = rss();  // the allocator has what it needs
    if (k == 8 * 1590) late = rss();
    if (k % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  CHECK(ran.exit() == 0);
  check_bounds(ran.report);
  REQUIRE(early > 0);
  REQUIRE(late > 0);
  CHECK(late - early < 16 << 20);
  MESSAGE("resident memory grew by " << (late - early) / 1024 << " KiB from step 400 to 1590");
}

TEST_CASE(
    "a run: rows of weight 0 change no gradient, whatever they hold; a filler moves nothing, another row moves the "
    "window") {
  const auto sample = [](double x, double y, double weight, bool filler = false) {
    Sample s;
    s.x = at::full({2}, x, at::kFloat);
    s.y = at::full({1}, y, at::kFloat);
    s.tag.weight = weight;
    s.tag.filler = filler;
    return s;
  };
  Topology t;
  t.streams = 2;
  t.lanes = 1;
  t.source = R"("type": "script")";
  t.chain =
      R"( { "id": "win", "repeat": 2, "type": "window", "in": [ { "from": "gen", "take": 1 } ], "params": { "length": 2 } },)";
  t.last = "win";
  t.run = R"("steps": 100, "dtype": "float32")";
  const auto weights_with = [&](const Sample& odd, const Sample& after) {
    scripts()["gen0"] = {sample(0, 0, 1), sample(1, 1, 1), odd, after, sample(0.5, 1, 1)};
    scripts()["gen1"] = {sample(0, 0, 1), sample(2, 1, 1), sample(1, 1, 1), sample(1, 2, 1), sample(0.5, 1, 1)};
    const Ran ran = train(t.text());
    REQUIRE_MESSAGE(ran.exit() == 0, ran.reason());
    CHECK(ran.report["steps"] == 4);
    return ran.report["weights_sha256"].get<std::string>();
  };
  const Sample next = sample(0.25, -1, 1);
  // NaN, infinity or anything else inside a filler: the same weights.
  const std::string filler = weights_with(sample(0, 0, 0, true), next);
  CHECK(weights_with(sample(NAN, NAN, 0, true), next) == filler);
  CHECK(weights_with(sample(INFINITY, -1e30, 0, true), next) == filler);
  // A context row: its y never matters, its x moves the window that the next row is seen in.
  const std::string context = weights_with(sample(3, 0, 0), next);
  CHECK(weights_with(sample(3, NAN, 0), next) == context);
  CHECK(weights_with(sample(3, 1e30, 0), next) == context);
  CHECK(context != filler);
  CHECK(weights_with(sample(4, NAN, 0), next) != context);
}

TEST_CASE("a run: steps in which no row counts apply nothing and have no loss") {
  Topology t;
  t.source = R"("type": "ar1", "params": { "features": 6, "weight": 0 })";
  const Ran ran = train(t.text());
  CHECK(ran.exit() == 0);
  CHECK(ran.report["loss"]["last"].is_null());
  CHECK(ran.report["weights_sha256"] == train(t.text(), {"run.steps=1"}).report["weights_sha256"]);
}

TEST_CASE("a run: the normalisation is fitted in one pass, whatever a source's own end means") {
  for (const char* const rule : {"first", "mask", "restart", "error"}) {
    CAPTURE(rule);
    Topology t;
    t.streams = 4;
    t.lanes = 2;
    t.source = R"("type": "sine", "params": { "period": 7, "samples": 30 })";
    t.chain = R"( { "id": "norm", "repeat": 4, "type": "normalize", "in": [ { "from": "gen", "take": 1 } ] },)";
    t.last = "norm";
    t.run = R"("steps": 10, "seed": 7)";
    const Ran ran = train(t.text(), {fmt::format("gen1.on_end={}", rule)});
    CHECK(ran.reason() == "all 10 steps are done");
  }
}
