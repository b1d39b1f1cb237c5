#include "runtime/device.h"

#include <filesystem>

#include "graph/error.h"
#include "runtime/devices/emulated.h"
#include "runtime/devices/switches.h"
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/processes.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

TEST_CASE(
    "device: the GPUs that are visible are those with device files, of which CUDA_VISIBLE_DEVICES may leave fewer") {
  int count = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  const int all = visible_gpus();
  CHECK(all >= count);
  for (const char* const chosen : {"", "none", "0", "0,1,2"}) {
    ::setenv("CUDA_VISIBLE_DEVICES", chosen, 1);
    CAPTURE(chosen);
    CHECK(visible_gpus() == gpus_left(all, chosen));
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::setenv("LANEWISE_EMULATED_GPUS", "3", 1);
  CHECK(visible_gpus() == 3);
  ::setenv("LANEWISE_EMULATED_GPUS", "many", 1);
  CHECK_THROWS(visible_gpus());
  ::unsetenv("LANEWISE_EMULATED_GPUS");
}

TEST_CASE("device: CUDA_VISIBLE_DEVICES ends at its first entry that is no GPU, and one that stands twice hides all") {
  const std::pair<const char*, int> of_four[] = {{"", 0},
                                                 {"-1", 0},
                                                 {"-1,0", 0},
                                                 {"0", 1},
                                                 {"3,1", 2},
                                                 {"0,-1,1,2", 1},
                                                 {"0,,1", 1},
                                                 {"NoDevFiles", 0},
                                                 {"none", 0},
                                                 {"x", 0},
                                                 {"99", 0},
                                                 {"0,4,1", 1},
                                                 {"0,0", 0},
                                                 {"0,1,0", 0},
                                                 {"0, 2", 2},
                                                 {"2, 2", 0},
                                                 {"1gpu", 1},
                                                 {"GPU-1a2b,MIG-3", 2},
                                                 {"GPU-1,GPU-1", 0},
                                                 {"GPU-1,other", 1},
                                                 {"0,1,2,3,4,5", 4},
                                                 {"99999999999", 0}};
  for (const auto& [chosen, left] : of_four) {
    CAPTURE(chosen);
    CHECK(gpus_left(4, chosen) == left);
  }
  CHECK(gpus_left(1, "GPU-1,GPU-2") == 1);
  CHECK(gpus_left(0, "0") == 0);
}

TEST_CASE("device: a lane on a GPU behind the last one is refused with what to do, on emulated GPUs, too") {
  Topology t;
  const auto refused = [&](const char* gpus) {
    ::setenv("LANEWISE_EMULATED_GPUS", gpus, 1);
    const std::string error = error_of([&] { open_accelerator(plans_of(t.text(), {"lane.device=cuda:*"}).train); });
    ::unsetenv("LANEWISE_EMULATED_GPUS");
    return error;
  };
  CHECK(refused("4") ==
        "9: lane4 is on cuda:4, and 4 GPUs are here; on these it runs with --set lane.device=cuda:*, on virtual "
        "devices of the host with --set lane.device=cpu:*");
  CHECK(refused("1").starts_with("9: lane1 is on cuda:1, and 1 GPU is here; on it it runs with "));
  CHECK(refused("8") == "");
}

TEST_CASE("device: processes whose lanes share a GPU are refused, each with both lanes and what to do") {
  const auto joined = [](std::vector<std::string> sets) {
    sets.push_back("run.fuse=off");
    const Registry registry = test_registry();  // the plans' nodes point into it
    const Plans plans = plans_of(Topology().text(), sets, registry);
    ::setenv("LANEWISE_EMULATED_GPUS", "8", 1);
    const auto said = in_processes(2, [&](World& world) -> std::string {
      check_gpus_apart(world, plans.train, lanes_of(8, world.rank(), world.size()), *make_emulated_accelerator());
      return "apart";
    });
    ::unsetenv("LANEWISE_EMULATED_GPUS");
    return said;
  };
  CHECK(joined({"lane.device=cuda:*"}) == std::vector<std::string>(2, "apart"));
  CHECK(joined({"lane[0..3].device=cuda:0", "lane[4..7].device=cuda:1"}) == std::vector<std::string>(2, "apart"));
  for (const std::string& error : joined({"lane.device=cuda:*", "lane5.device=cuda:2"})) {
    CAPTURE(error);
    CHECK(error.starts_with("9: lane2 of rank 0 (its cuda:2) and lane5 of rank 1 (its cuda:2) are on one GPU of "));
    CHECK(error.find(" (emulated 2), and NCCL takes one process a GPU; give each GPUs of its own, ") !=
          std::string::npos);
  }
}

TEST_CASE("device: a variable for measuring that is misspelt is refused with what it may be") {
  const std::pair<const char*, const char*> words[] = {
      {"LANEWISE_NCCL", "always"}, {"LANEWISE_REPLAY", "off"}, {"LANEWISE_CUDA_SYNC", "error"}};
  CHECK(may_replay());
  CHECK_FALSE(nccl_is_forced());
  for (const auto& [name, word] : words) {
    ::setenv(name, word, 1);
    CHECK(error_of(check_switches) == "");
    CHECK(may_replay() == (word != std::string("off")));
    CHECK(nccl_is_forced() == (word == std::string("always")));
    ::setenv(name, "of", 1);
    CHECK(error_of(check_switches) ==
          fmt::format("2: the environment variable {} is \"of\", and has to be \"{}\", or unset", name, word));
    ::unsetenv(name);
  }
  for (const char* const hang : {"1:", ":1", "a:b", "5", "-1:1", "1:2:3", "1:0", "1: 2", "99999999999999999999:1"}) {
    ::setenv("LANEWISE_EMULATED_HANG", hang, 1);
    CHECK(error_of(make_emulated_accelerator) ==
          fmt::format("2: the environment variable LANEWISE_EMULATED_HANG is \"{}\", and has to be QUEUE:WORK, two "
                      "numbers from 1 to 1000000000",
                      hang));
  }
  ::setenv("LANEWISE_EMULATED_HANG", "4:30", 1);
  CHECK(error_of(make_emulated_accelerator) == "");
  ::unsetenv("LANEWISE_EMULATED_HANG");
}

}  // namespace
}  // namespace lanewise
