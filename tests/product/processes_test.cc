// One pipeline in several processes: what they leave is what one process leaves.
#include "tests/product/processes.h"

namespace lanewise {

TEST_CASE("processes: torchrun with 1, 2 and 4 of them leaves what the command alone leaves, byte for byte") {
  for (const char* const config : {"configs/sines16.json", "configs/flights16.json"}) {
    CAPTURE(config);
    const TempDir dir;
    const Texts sets = {"run.steps=30", "evaluate.every=20"};
    std::map<std::string, std::unique_ptr<Process>> runs;  // by the number of processes
    for (const char* const n : {"1", "2", "4"}) {
      const Texts command = lanewise_argv(run_arguments(config, dir.path(n), sets));
      runs[n] = std::make_unique<Process>(torchrun_argv(dir.path(), {"--nproc-per-node", n}, command));
    }
    const std::string whole = whole_run(config, dir.path("whole"), sets);
    for (const auto& [n, run] : runs) {
      CAPTURE(n);
      const Finished finished = run->wait();
      INFO(finished.err);
      REQUIRE(finished.exit == 0);
      CHECK(contains(finished.out, "results in " + dir.path(n)));
      CHECK(finished.out.find("results in ") == finished.out.rfind("results in "));  // only one says it
      check_same(dir.path(n), whole);
    }
  }
}

TEST_CASE("processes: three share eight lanes unevenly and leave what one leaves") {
  const TempDir dir;
  const Texts sets = {"run.steps=20"};
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), sets);
  check_done(Group(3, run_arguments("configs/sines16.json", dir.path("run"), sets)).wait());
  check_same(dir.path("run"), whole);
  CHECK(read_json(dir.path("run/report.json")).at("processes").at("exchange") == "shared memory");

  // As on three hosts, which share no memory; and where only one speaks, that one does so for all.
  Group apart(3);
  for (int rank = 0; rank < 3; ++rank) {
    Texts arguments = run_arguments("configs/sines16.json", dir.path("apart"), sets);
    std::erase(arguments, "--quiet");
    apart.start(rank, arguments, {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  }
  check_done(apart.wait());
  check_same(dir.path("apart"), whole);
  CHECK(read_json(dir.path("apart/report.json")).at("processes").at("exchange") == "gloo");
}

TEST_CASE("processes: fused lanes are shared out as they are, and are what one process makes of them") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const Texts sets = {"run.fuse=2"};
  const std::string whole = whole_run(file, dir.path("whole"), sets);
  check_done(Group(2, run_arguments(file, dir.path("run"), sets)).wait());
  check_same(dir.path("run"), whole);

  for (const Finished& finished : Group(3, run_arguments(file, dir.path("three"), sets)).wait()) {
    CHECK(finished.exit == 2);
    CHECK(
        contains(finished.err,
                 "there are 3 processes, and the lanes are 2 batches (fused: lane[0..1] and lane[2..3]); give run.fuse "
                 "as many as there are processes, or off"));
  }
}

TEST_CASE(
    "processes: carried state, dropout, accumulation, evaluations and every end of a stream are those of one process") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::map<std::string, Texts> variants = {
      {"mask", {"models.net.type=lstm"}},
      {"restart", {"run.on_end=restart", "run.passes=2"}},
      {"first", {"run.on_end=first", "run.tbptt=2", "fault5.kind=end", "fault5.at=20"}},
  };
  for (const auto& [name, sets] : variants) {
    CAPTURE(name);
    const std::string whole = whole_run(file, dir.path(name), sets);
    Group three(3, run_arguments(file, dir.path(name + "3"), sets)),
        four(4, run_arguments(file, dir.path(name + "4"), sets));
    check_done(three.wait());
    check_done(four.wait());
    check_same(dir.path(name + "3"), whole);
    check_same(dir.path(name + "4"), whole);
  }
}

TEST_CASE(
    "processes: deterministic and fast sums differ from the reference by rounding, deterministic ones always alike") {
  const TempDir dir;
  const Texts sets = {"run.steps=20", "opt.name=sgd", "opt.lr=0.05", "run.fuse=off"};
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), sets);
  for (const std::string name : {"fast", "deterministic", "deterministic again"}) {
    CAPTURE(name);
    Texts more = sets;
    more.push_back("run.reduction=" + name.substr(0, name.find(' ')));
    check_done(Group(3, run_arguments("configs/sines16.json", dir.path(name), more)).wait());
    CHECK(distance(losses_of(dir.path(name)), losses_of(whole)) <= 1e-5);
    CHECK(distance(weights_of(dir.path(name)), weights_of(whole)) <= 1e-5);
  }
  check_same(dir.path("deterministic again"), dir.path("deterministic"));
}

TEST_CASE("processes: copies of the weights that are compared are alike, whatever the lanes' own buffers hold") {
  const TempDir dir;
  for (const char* const buffers : {"local", "average"}) {
    const Texts sets = {"run.steps=6", "run.verify_every=2", "models.net.norm=batch",
                        fmt::format("run.buffers={}", buffers)};
    check_done(Group(2, run_arguments("configs/sines16.json", dir.path(buffers), sets)).wait());
  }
}

TEST_CASE("processes: two hosts train as one, and each names the other when the cable is pulled") {
  const TwoHosts hosts;
  if (!hosts.made()) {
    MESSAGE("not run: network namespaces cannot be made here");
    return;
  }
  const TempDir dir;
  const auto start = [&](Group& group, const Texts& arguments) {
    const Variables apart = {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", hosts.address(0)}};
    for (int host = 0; host < 2; ++host) group.start(host, arguments, apart, "", hosts.on(host));
  };
  const std::string whole = whole_run("configs/sines16.json", dir.path("whole"), {"run.steps=30"});
  Group together(2);
  start(together, run_arguments("configs/sines16.json", dir.path("run"), {"run.steps=30"}));
  check_done(together.wait());
  check_same(dir.path("run"), whole);

  Group apart(2);
  start(apart,
        run_arguments("configs/sines16.json", dir.path("apart"), {"run.steps=1000000"}, {"--peer-timeout", "2"}));
  REQUIRE(apart[0].wait_for_file(dir.path("apart/metrics.jsonl"), 1));
  hosts.pull_the_cable();
  const std::vector<Finished> all = apart.wait();
  for (int rank = 0; rank < 2; ++rank) {
    INFO(all[rank].err);
    CHECK(all[rank].exit == 8);
    CHECK(contains(all[rank].err, rank == 0 ? "rank 1 (lane4" : "rank 0 (lane0"));
  }
}

TEST_CASE(
    "run: with --resume-if-any the same command begins a run and goes on with it, alone and in several processes") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  const Texts arguments = run_arguments(file, dir.path("run"), {}, {"--resume-if-any"});
  const Finished killed = run_program(lanewise_argv(arguments), {.environment = {"LANEWISE_KILL_AT=renamed:3"}});
  CHECK(killed.signal == SIGKILL);
  check_done(Group(2, arguments).wait());
  CHECK(read_json(dir.path("run/report.json")).at("resumed_after") == 9);
  check_same(dir.path("run"), whole);
  check_done({lanewise_command(arguments)});  // nothing is left to do
  check_same(dir.path("run"), whole);
}

TEST_CASE(
    "processes: with --resume-if-any torchrun restarts a run in which a process was killed, and nothing shows it") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  std::string script = "[ $RANK.$TORCHELASTIC_RESTART_COUNT = 0.0 ] && export LANEWISE_KILL_AT=renamed:3; exec";
  for (const std::string& argument :
       lanewise_argv(run_arguments(file, dir.path("run"), {}, {"--resume-if-any", "--peer-timeout", "10"})))
    script += " '" + argument + "'";
  const Finished finished = run_program(
      torchrun_argv(dir.path(), {"--nproc-per-node", "2", "--max-restarts", "2"}, {"/bin/bash", "-c", script}));
  INFO(finished.err);
  REQUIRE(finished.exit == 0);
  CHECK(read_json(dir.path("run/report.json")).at("resumed_after") == 9);
  check_same(dir.path("run"), whole);
}

TEST_CASE("processes: two torchruns, as on two hosts, restart a run in which one of them lost a process") {
  const TempDir dir;
  const std::string file = dir.write("p.json", kPipeline);
  const std::string whole = whole_run(file, dir.path("whole"));
  std::string script = "[ $RANK = 0 ] && [ ! -e " + dir.path("again") + " ] && touch " + dir.path("again") +
                       " && export LANEWISE_KILL_AT=renamed:3; exec";
  for (const std::string& argument :
       lanewise_argv(run_arguments(file, dir.path("run"), {}, {"--resume-if-any", "--peer-timeout", "10"})))
    script += " '" + argument + "'";
  const std::string endpoint = fmt::format("127.0.0.1:{}", free_port());
  std::vector<std::unique_ptr<Process>> hosts;
  for (int host = 0; host < 2; ++host) {
    Texts argv = {fs::absolute(".venv/bin/torchrun").string(),
                  "--no-python",
                  "--log-dir",
                  dir.path(),
                  "--nnodes",
                  "2",
                  "--nproc-per-node",
                  "1",
                  "--rdzv-backend",
                  "c10d",
                  "--rdzv-endpoint",
                  endpoint,
                  "--max-restarts",
                  "3",
                  "/bin/bash",
                  "-c",
                  script};
    hosts.push_back(std::make_unique<Process>(argv));
  }
  for (const auto& host : hosts) {
    const Finished finished = host->wait();
    INFO(finished.err);
    CHECK(finished.exit == 0);
  }
  check_same(dir.path("run"), whole);
}

}  // namespace lanewise
