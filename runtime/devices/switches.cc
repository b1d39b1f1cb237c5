#include "runtime/devices/switches.h"

#include "runtime/environment.h"

namespace lanewise {

bool nccl_is_forced() { return word_variable("LANEWISE_NCCL", "always"); }
bool may_replay() { return !word_variable("LANEWISE_REPLAY", "off"); }
bool waiting_is_error() { return word_variable("LANEWISE_CUDA_SYNC", "error"); }

void check_switches() {
  nccl_is_forced();
  may_replay();
  waiting_is_error();
}

}  // namespace lanewise
