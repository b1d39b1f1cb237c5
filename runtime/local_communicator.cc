// The communicator for lanes of one process: buckets are added in lane order, in double, and rounded once.
#include "runtime/communicator.h"

#include <fmt/format.h>

#include "graph/error.h"
#include "runtime/lane_sum.h"

namespace lanewise {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  double reduce(Replicas& replicas, RoundOfStep round) override {
    return replicas.weights(0).scalar_type() == at::kDouble
               ? sum_.reduce<double>(buckets<double>(replicas), replicas, round)
               : sum_.reduce<float>(buckets<float>(replicas), replicas, round);
  }

 private:
  LaneSum sum_;
};

}  // namespace

void Communicator::verify(const Replicas& replicas) {
  replicas.verify();
  if (const std::string where = apart(replicas); !where.empty()) {
    throw Error(Exit::kDevice,
                fmt::format("the copies of the weights have come apart: {}; a device or its memory has failed", where));
  }
}

std::unique_ptr<Communicator> make_local_communicator() { return std::make_unique<LocalCommunicator>(); }

}  // namespace lanewise
