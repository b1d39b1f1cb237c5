#include "runtime/devices/device_training.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/device.h"
#include "runtime/devices/switches.h"
#include "runtime/round_tail.h"

namespace lanewise {
namespace {

// The GPU of each domain.
std::vector<int> gpus_of_domains(const Replicas& replicas, const std::vector<int>& gpus) {
  std::vector<int> all(static_cast<std::size_t>(replicas.domain_count()));
  for (std::size_t i = 0; i < gpus.size(); ++i)
    all[replicas.domain_of(replicas.first_lane() + static_cast<int>(i))] = gpus[i];
  return all;
}

}  // namespace

DeviceTraining::DeviceTraining(const Parts& parts)
    : accelerator_(parts.accelerator),
      replicas_(parts.replicas),
      optimizers_(parts.optimizers),
      table_(parts.lanes),
      gpus_(gpus_of_lanes(parts.plan, parts.lanes.own())) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const int lane = parts.lanes.own().begin + static_cast<int>(i);
    const std::span<const int> streams = parts.lanes.streams(lane);
    lanes_.push_back(std::make_unique<DeviceLane>(accelerator_, gpus_[i], replicas_, lane,
                                                  std::vector<int>(streams.begin(), streams.end()),
                                                  parts.plan.run.state == "carry", parts.dropout, parts.peer_timeout));
  }
  reduction_ =
      std::make_unique<DeviceReduction>(parts.world, replicas_, accelerator_, gpus_of_domains(replicas_, gpus_),
                                        DeviceReductionOptions{.mode = parts.plan.reduction(),
                                                               .votes = parts.plan.run.non_finite != "allow",
                                                               .accumulates = parts.plan.run.accumulate > 1,
                                                               .through_nccl = nccl_is_forced(),
                                                               .peer_timeout = parts.peer_timeout,
                                                               .part_bytes = accelerator_.part_bytes()});
  if (reduction_->parts().size() == 1) return;
  for (const auto& one : lanes_) {
    one->reduce_in_parts(reduction_->parts(),
                         [this, lane = one->lane()](int part, std::uint64_t round, const QueuePoint& point) {
                           reduction_->hand_over(lane, part, round, point);
                         });
  }
}

// A lane may still be at work when another has failed, and hands over to the reduction.
DeviceTraining::~DeviceTraining() {
  for (const auto& lane : lanes_) lane->wait_for_parts_in_vain();
}

DeviceLane& DeviceTraining::lane(int lane) { return *lanes_[lane - replicas_.first_lane()]; }

void DeviceTraining::reduce(RoundOfStep round) {
  if (reduction_->parts().size() > 1) {
    for (const auto& lane : lanes_) lane->wait_for_parts();
    reduction_->wait_for_parts();
  }
  domains_wait_for_lanes();
  reduction_->issue(round);
  ++packed_;
  if (round.last) return;  // apply() comes
  lanes_wait_for_domains();
}

// As nodes/clip.cc has it. A factor of 1 changes no bit.
void DeviceTraining::clip(double max_norm) {
  for (int d = 0; d < reduction_->domain_count(); ++d) {
    reduction_->queue(d).run([this, d, max_norm] {
      const at::Tensor factor = (max_norm / (reduction_->norm(d) + 1e-6)).clamp_max(1);
      replicas_.reduced(d).narrow(0, 0, replicas_.layout().parameters).mul_(factor);
    });
  }
}

void DeviceTraining::apply(double lr) {
  for (int d = 0; d < reduction_->domain_count(); ++d) {
    reduction_->queue(d).run([this, d, lr] {
      const at::Tensor& holds = reduction_->holds(d);
      optimizers_.step(d, lr, holds[0]);
      settle_states(d, holds[1]);
    });
  }
  lanes_wait_for_domains();
  ++updated_;
}

void DeviceTraining::roll_back() {
  domains_wait_for_lanes();
  for (int d = 0; d < reduction_->domain_count(); ++d)
    reduction_->queue(d).run([this, d] { settle_states(d, at::ones({}, reduction_->holds(d).options())); });
  lanes_wait_for_domains();
}

void DeviceTraining::settle_states(int domain, const at::Tensor& held) {
  for (const auto& lane : lanes_) {
    if (replicas_.domain_of(lane->lane()) == domain) lane->settle_state(held);
  }
}

DeviceQueue& DeviceTraining::domain_queue(const DeviceLane& lane) {
  return reduction_->queue(replicas_.domain_of(lane.lane()));
}

void DeviceTraining::domains_wait_for_lanes() {
  for (const auto& lane : lanes_) domain_queue(*lane).wait_for(lane->queue());
}

void DeviceTraining::lanes_wait_for_domains() {
  for (const auto& lane : lanes_) lane->queue().wait_for(domain_queue(*lane));
}

void DeviceTraining::tell(Reduced& reduced) {
  const RoundOutcome outcome = reduction_->outcome();
  ++reduced_;
  read_tail(reduced, outcome.n, outcome.tail, replicas_.layout(), table_);
  reduced.grad_norm = outcome.norm;
  reduced.known = true;
}

std::string DeviceTraining::flight_record() {
  std::string text;
  for (const auto& lane : lanes_) {
    if (lane->rounds() == 0) continue;
    std::string done = "?";
    try {
      done = std::to_string(lane->rounds_done());
    } catch (const std::exception&) {
      // The device answers nothing but its error.
    }
    text += fmt::format(
        "  lane{} (cuda:{}): issued {} rounds, of which {} are done, {} were packed and {} reduced; {} "
        "steps were issued\n",
        lane->lane(), gpus_[lane->lane() - replicas_.first_lane()], lane->rounds(), done, packed_, reduced_, updated_);
  }
  return text;
}

void DeviceTraining::wait() {
  for (const auto& lane : lanes_) lane->wait();
  reduction_->wait();
}

void DeviceTraining::save_state(RecurrentState& recurrent) {
  for (const auto& lane : lanes_) lane->save_state(recurrent);
}

void DeviceTraining::load_state(const RecurrentState& recurrent) {
  for (const auto& lane : lanes_) lane->load_state(recurrent);
}

nlohmann::ordered_json DeviceTraining::told() const {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const auto& lane : lanes_) {
    const int gpu = gpus_[lane->lane() - replicas_.first_lane()];
    nlohmann::ordered_json one = {{"lane", lane->lane()},
                                  {"device", fmt::format("cuda:{}", gpu)},
                                  {"name", accelerator_.name(gpu)},
                                  {"replayed_rounds", lane->replays()}};
    if (reduction_->parts().size() > 1) {
      one["parts"] = reduction_->parts().size();
      one["early_parts"] = lane->early_parts();
    }
    if (!lane->unrecorded().empty()) one["not_recorded"] = lane->unrecorded();
    devices.push_back(std::move(one));
  }
  return devices;
}

}  // namespace lanewise
