// Counter-based random numbers: every draw is a function of (run seed, purpose, id, counter) and of nothing else, so
// that adding a lane, changing threads or resuming changes no number of any stream.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lanewise {

// Four random words that depend on nothing but counter and key: Philox4x32-10.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A sequence of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") keyed by a hash of
// seed, purpose and id.
class Random {
 public:
  // `purpose`: "train", "evaluate", "init"; `id`: the node's or parameter's; `counter`: usually seq.
  Random(std::uint64_t seed, std::string_view purpose, std::string_view id, std::uint64_t counter = 0);

  // The same key at another counter, as cheap as a copy; draws start afresh.
  Random at(std::uint64_t counter) const;

  std::uint64_t bits();  // 64 uniform bits
  double uniform();      // [0, 1), 53 bits
  double uniform(double low, double high);
  double normal();  // mean 0, variance 1 (Box-Muller)

 private:
  std::uint64_t key_, counter_, block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  int used_ = 4;
  double spare_ = 0;
  bool has_spare_ = false;
};

// What nodes draw their numbers by: the run's seed, and "train" or "evaluate".
struct RandomSeed {
  std::uint64_t seed = 0;
  std::string_view purpose = "train";
};

}  // namespace lanewise
