#include "tests/fake_nccl/plan.h"

#include <nccl.h>

#include <algorithm>

#include "tests/fake_nccl/common.h"

namespace fake_nccl {
namespace {

bool can_be(const Fault& fault) {
  const bool collective = fault.at >= 0, an_error = fault.value > ncclSuccess && fault.value < ncclInProgress;
  const bool comes_to_an_end = collective || fault.at == kFakeNcclAtInit || fault.at == kFakeNcclAtFinalize;
  switch (fault.kind) {
    case kFakeNcclError:
      return comes_to_an_end && an_error;
    case kFakeNcclHang:
      return comes_to_an_end;
    case kFakeNcclLate:
      return (comes_to_an_end || fault.at == kFakeNcclAtAbort) && fault.value >= 0;
    case kFakeNcclLaunchError:
    case kFakeNcclLaterLaunchError:
    case kFakeNcclCallError:
    case kFakeNcclEndError:
      return collective && an_error;
    case kFakeNcclCorrupt:
      return collective && fault.value >= 0;
  }
  return false;
}

}  // namespace

bool Plan::add(const Fault& fault) {
  if (fault.rank < 0 || !can_be(fault)) return false;
  faults_.push_back(fault);
  return true;
}

std::optional<std::int64_t> Plan::take(FakeNcclFault kind, int rank, std::int64_t at) {
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.kind == kind && fault.rank == rank && fault.at == at;
  });
  if (found == faults_.end()) return std::nullopt;
  const std::int64_t value = found->value;
  faults_.erase(found);
  return value;
}

void Plan::set_delay(std::uint64_t seed, int max_us) {
  seed_ = seed;
  max_us_ = static_cast<std::uint64_t>(std::max(max_us, 0));
}

std::chrono::microseconds Plan::delay(int rank, std::int64_t at, Delay what_for) const {
  std::uint64_t bits = mixed(mixed(seed_) ^ static_cast<std::uint64_t>(rank));
  bits = mixed(mixed(bits ^ static_cast<std::uint64_t>(at)) ^ static_cast<std::uint64_t>(what_for));
  return std::chrono::microseconds(bits % (max_us_ + 1));
}

}  // namespace fake_nccl
