#include "runtime/world.h"

#include <ATen/ATen.h>

#include "tests/check.h"
#include "tests/runtime/errors.h"
#include "tests/runtime/processes.h"

using namespace lanewise;

namespace {

// What the environment tells, with these variables and no others of their kind.
std::string place_with(const std::map<std::string, std::string>& variables) {
  for (const char* const name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::string text;
  const std::string error = error_of([&] {
    const auto place = process_place();
    text = !place ? "alone"
                  : fmt::format("{} of {} at {}:{}{}{}", place->rank, place->size, place->address, place->port,
                                place->one_host ? ", one host" : "", place->agent_serves ? ", agent" : "");
  });
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return text.empty() ? error : text;
}

}  // namespace

TEST_CASE("world: a process finds its place in torchrun's environment, or is alone") {
  CHECK(place_with({}) == "alone");
  CHECK(place_with({{"WORLD_SIZE", "1"}}) == "alone");
  CHECK(place_with({{"WORLD_SIZE", "1"}, {"RANK", "0"}}) == "alone");
  for (const char* const rank : {"1", "nonsense"}) {
    CHECK(place_with({{"WORLD_SIZE", "1"}, {"RANK", rank}}) ==
          fmt::format("2: the environment variable RANK is \"{}\", and has to be 0, by WORLD_SIZE", rank));
  }
  std::map<std::string, std::string> all = {
      {"WORLD_SIZE", "4"}, {"RANK", "3"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "29500"}};
  CHECK(place_with(all) == "3 of 4 at ::1:29500");
  all.insert({{"LOCAL_WORLD_SIZE", "4"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(place_with(all) == "3 of 4 at ::1:29500, one host, agent");
  all["RANK"] = "4";
  CHECK(place_with(all) == "2: the environment variable RANK is \"4\", and has to be a number from 0 to 3");
  all["RANK"] = "1x";
  CHECK(place_with(all) == "2: the environment variable RANK is \"1x\", and has to be a number from 0 to 3");
  all.erase("RANK");
  CHECK(place_with(all) ==
        "2: WORLD_SIZE is set, but not RANK; start the processes with torchrun, or as the README says, or unset "
        "WORLD_SIZE");
}

TEST_CASE("world: the hosts are counted from torchrun's numbers of processes") {
  const auto with = [](const char* all, const char* here) {
    ::setenv("WORLD_SIZE", all, 1);
    ::setenv("LOCAL_WORLD_SIZE", here, 1);
    const int count = hosts();
    ::unsetenv("WORLD_SIZE");
    ::unsetenv("LOCAL_WORLD_SIZE");
    return count;
  };
  CHECK(hosts() == 1);
  CHECK(with("16", "8") == 2);
  CHECK(with("8", "8") == 1);
  CHECK(with("3", "1") == 3);
  CHECK(with("many", "8") == 1);
  CHECK(with("16", "") == 1);
}

TEST_CASE("world: processes gather texts and rows of unequal sizes, and take what the first gives") {
  for (const int processes : {1, 2, 4}) {
    const std::vector<std::string> all = in_processes(processes, [](World& world) {
      std::string text;
      for (const std::string& one : world.gather(std::string(5 * world.rank(), 'x'))) text += one + "|";
      const at::Tensor rows = world.gather_rows(at::full({world.rank() % 2, 3}, world.rank(), at::kDouble));
      return text + fmt::format(" {} {} {}", rows.size(0), rows.sum().item<double>(),
                                world.from_first(world.first() ? "from first" : ""));
    });
    const char* const right = processes == 1   ? "| 0 0 from first"
                              : processes == 2 ? "|xxxxx| 1 3 from first"
                                               : "|xxxxx|xxxxxxxxxx|xxxxxxxxxxxxxxx| 2 12 from first";
    for (const std::string& text : all) CHECK(text == right);
  }
}

TEST_CASE("world: an error of one process ends the others with its exit code and reason") {
  const std::vector<std::string> all = in_processes(3, [](World& world) -> std::string {
    world.gather("");
    if (world.rank() == 1) {
      world.tell_failure(Exit::kData, "rank 1 (lane1): the file is gone");
      throw Error(Exit::kData, "the file is gone");
    }
    world.gather("");
    return "went on";
  });
  CHECK(all[0] == "4: rank 1 (lane1): the file is gone");
  CHECK(all[1] == "4: the file is gone");
  CHECK(all[2] == all[0]);
}

TEST_CASE("world: what each does by itself is broken off soon after one wants it") {
  const std::vector<std::string> all = in_processes(3, [](World& world) -> std::string {
    world.gather("");
    if (world.break_off(false)) return "nobody wants it";
    world.gather("");
    if (world.rank() == 1) return world.break_off(true) && world.break_off(false) ? "broken off" : "goes on";
    while (!world.break_off(false)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return "broken off";
  });
  for (const std::string& text : all) CHECK(text == "broken off");
}

TEST_CASE("world: a process that leaves without a word, or is silent, is named by the others") {
  for (const bool silent : {false, true}) {
    CAPTURE(silent);
    const std::vector<std::string> all = in_processes(
        3,
        [&](World& world) -> std::string {
          world.gather("");
          if (world.rank() == 1) {
            if (silent) std::this_thread::sleep_for(std::chrono::seconds(5));
            throw Error(Exit::kInternal, "left");
          }
          world.gather("");
          return "went on";
        },
        std::chrono::seconds(2));
    for (const int rank : {0, 2})
      CHECK(all[rank] == "8: rank 1 (lane1) is gone or does not answer, before the first round");
  }
}
