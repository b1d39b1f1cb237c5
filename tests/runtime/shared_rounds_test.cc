#include "runtime/shared_rounds.h"

#include <cstring>

#include "tests/check.h"
#include "tests/runtime/processes.h"

using namespace lanewise;
using std::chrono::milliseconds;

namespace {

std::uint64_t value_of(int rank, std::uint64_t round) { return 1000 * round + static_cast<std::uint64_t>(rank); }

void give(SharedRounds& shared, std::uint64_t value) { std::memcpy(shared.own(), &value, sizeof value); }

std::uint64_t given(const SharedRounds& shared, int rank) {
  std::uint64_t value = 0;
  std::memcpy(&value, shared.part(rank), sizeof value);
  return value;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("shared rounds: every process sees what each gave in this round, however late one is") {
  const std::vector<std::string> wrong = in_processes(4, [](World& world) -> std::string {
    const auto shared = SharedRounds::make(world, 100, milliseconds(20000));
    if (shared == nullptr) return "no memory is shared";
    for (std::uint64_t round = 0; round < 2000; ++round) {
      if (round % 500 == 100 * static_cast<std::uint64_t>(world.rank())) std::this_thread::sleep_for(milliseconds(30));
      give(*shared, value_of(world.rank(), round));
      shared->exchange();
      for (int rank = 0; rank < world.size(); ++rank) {
        if (given(*shared, rank) != value_of(rank, round)) return fmt::format("rank {} in round {}", rank, round);
      }
    }
    return "";
  });
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("shared rounds: who waits for one that is gone, has closed or is silent does not wait for long") {
  enum class End { kGone, kClosed, kSilent };
  for (const auto& [end, said, most] : {std::tuple{End::kGone, "a process is gone", 2.0},
                                        {End::kClosed, "a process has left", 2.0},
                                        {End::kSilent, "a process is silent", 4.0}}) {
    CAPTURE(said);
    const std::vector<std::string> all = in_processes(3, [end = end, most = most](World& world) -> std::string {
      auto shared = SharedRounds::make(world, 8, milliseconds(end == End::kSilent ? 300 : 20000));
      shared->exchange();
      const auto start = std::chrono::steady_clock::now();
      if (world.rank() != 1) {
        std::string error;
        try {
          shared->exchange();
        } catch (const std::runtime_error& thrown) {
          error = thrown.what();
        }
        world.gather("");
        return seconds_since(start) < most ? error : "late: " + error;
      }
      if (end == End::kGone) shared.reset();
      if (end == End::kClosed) shared->close();
      world.gather("");
      return "";
    });
    CHECK(all[0] == said);
    CHECK(all[2] == said);
  }
}

TEST_CASE("shared rounds: more memory than there is, is shared by nobody") {
  const std::vector<std::string> all = in_processes(2, [](World& world) {
    return SharedRounds::make(world, std::size_t{1} << 50, milliseconds(1000)) ? "some" : "none";
  });
  for (const std::string& text : all) CHECK(text == "none");
}
