#include "runtime/devices/switches.h"

#include "runtime/environment.h"

namespace lanewise {

bool nccl_is_forced() { return word_variable("LANEWISE_NCCL", "always"); }
bool may_replay() { return !word_variable("LANEWISE_REPLAY", "off"); }

void check_switches() {
  nccl_is_forced();
  may_replay();
  word_variable("LANEWISE_CUDA_SYNC", "error");
}

}  // namespace lanewise
