#include "runtime/devices/device_reduction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "runtime/exchange.h"
#include "runtime/nccl/ranks.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

constexpr std::size_t kSlots = 2;  // rounds that may be under way

// Where tensors' elements lie, for a device to read.
at::Tensor addresses(const std::vector<at::Tensor>& tensors, at::Device device) {
  std::vector<std::int64_t> all;
  for (const at::Tensor& t : tensors) all.push_back(reinterpret_cast<std::int64_t>(t.data_ptr()));
  return at::tensor(all, at::kLong).to(device);
}

std::vector<at::Tensor> rows_of(const at::Tensor& matrix) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < matrix.size(0); ++i) rows.push_back(matrix[i]);
  return rows;
}

}  // namespace

struct DeviceReduction::Domain {
  int index = 0;
  std::vector<int> lanes;
  at::Tensor buckets, lane_of;  // addresses and lanes of the buckets, on the device
  at::Tensor exchanged;         // what goes through NCCL: [1, or all lanes, bucket]; undefined: nothing
  at::Tensor exchanged_rows;    // addresses of its rows
  at::Tensor sums;              // of a step's rounds, in double; undefined: steps have one round
  at::Tensor outcome, holds, workspace;
  at::Tensor telling;                   // outcome and tail, in double
  std::array<at::Tensor, kSlots> told;  // the same in host memory
  Patience patience;
  std::unique_ptr<DeviceQueue> queue;  // last: its work uses the others
};

DeviceReduction::DeviceReduction(World& world, Replicas& replicas, Accelerator& accelerator, std::vector<int> gpus,
                                 const DeviceReductionOptions& options)
    : world_(world), replicas_(replicas), options_(options) {
  const BucketLayout& layout = replicas.layout();
  const bool alone = world.size() == 1 && gpus.size() == 1 && !options.through_nccl;
  const bool whole = alone || options.mode == "reference";
  parts_ = bucket_parts(layout, static_cast<std::int64_t>(replicas.weights(0).element_size()),
                        whole ? std::numeric_limits<std::int64_t>::max() : options.part_bytes);
  handed_over_.resize(parts_.size());
  for (int d = 0; d < replicas.domain_count(); ++d) {
    Domain& domain = *domains_.emplace_back(std::make_unique<Domain>());
    domain.index = d;
    const at::Device device = accelerator.device(gpus[d]);
    const auto zeros = [&](std::int64_t size, at::ScalarType type) {
      return at::zeros({size}, at::TensorOptions(type).device(device));
    };
    std::vector<at::Tensor> buckets;
    for (int lane = replicas.first_lane(); lane < replicas.first_lane() + replicas.lane_count(); ++lane) {
      if (replicas.domain_of(lane) != d) continue;
      domain.lanes.push_back(lane);
      buckets.push_back(replicas.bucket(lane));
    }
    domain.buckets = addresses(buckets, device);
    domain.lane_of = at::tensor(domain.lanes, at::kInt).to(device);
    if (!alone) {
      const std::int64_t rows = options.mode == "reference" ? layout.lanes : 1;
      domain.exchanged = at::zeros({rows, layout.size()}, buckets.front().options());
      domain.exchanged_rows = addresses(rows_of(domain.exchanged), device);
    }
    if (options.accumulates) domain.sums = zeros(layout.size(), at::kDouble);
    domain.outcome = zeros(kOutcomeCount, at::kDouble);
    domain.holds = zeros(2, at::kFloat);
    domain.workspace = zeros(bucket_pass_workspace(layout.parameters, layout.lanes), at::kByte);
    domain.telling = zeros(kOutcomeCount + layout.tail(), at::kDouble);
    for (at::Tensor& told : domain.told)
      told = accelerator.host_memory(gpus[d], static_cast<std::int64_t>(domain.telling.nbytes())).view(at::kDouble);
    domain.patience = {fmt::format("the reduction on cuda:{}, with what it waits for,", gpus[d]), options.peer_timeout};
    domain.queue = accelerator.make_queue(gpus[d]);
  }
  if (alone) return;
  NcclRanks::Options joined{.timeout = options.peer_timeout, .names = {}, .deterministic = options.mode != "fast"};
  std::vector<DeviceQueue*> queues;
  for (const auto& domain : domains_) {
    joined.names.push_back(fmt::format("lane{} on cuda:{}", domain->lanes.front(), gpus[domain->index]));
    queues.push_back(domain->queue.get());
  }
  ranks_ = std::make_unique<NcclRanks>(world, accelerator, std::move(queues), joined);
}

DeviceReduction::~DeviceReduction() {
  ranks_.reset();  // before the queues that it uses
}

DeviceQueue& DeviceReduction::queue(int domain) { return *domains_[domain]->queue; }
const at::Tensor& DeviceReduction::holds(int domain) const { return domains_[domain]->holds; }
at::Tensor DeviceReduction::norm(int domain) const { return domains_[domain]->outcome[kOutcomeNorm]; }
const char* DeviceReduction::through() const { return ranks_ != nullptr ? "nccl" : "one device"; }

BucketPass DeviceReduction::pass_over(const Domain& domain) const {
  BucketPass pass;
  pass.is_double = replicas_.weights(domain.index).scalar_type() == at::kDouble;
  pass.places = replicas_.layout();
  pass.end = pass.places.parameters;
  pass.votes = options_.votes;
  pass.outcome = domain.outcome.data_ptr<double>();
  pass.holds = domain.holds.data_ptr<float>();
  pass.workspace = domain.workspace.data_ptr();
  return pass;
}

NcclSum DeviceReduction::sum_of(int part, std::uint64_t round) const {
  NcclSum sum{.round = {round, part, static_cast<int>(parts_.size())}, .buffers = {}, .pieces = {}};
  for (const auto& domain : domains_) sum.buffers.push_back(domain->exchanged.data_ptr());
  const at::Tensor& exchanged = domains_[0]->exchanged;
  sum.is_double = exchanged.scalar_type() == at::kDouble;
  if (parts_.size() == 1) {
    sum.pieces = {{0, exchanged.numel()}};
  } else {
    const BucketLayout& layout = replicas_.layout();
    sum.pieces = {{parts_[part].begin, parts_[part].end - parts_[part].begin}};
    if (parts_[part].tail) sum.pieces.push_back({layout.parameters, layout.tail()});
  }
  return sum;
}

void DeviceReduction::hand_over(int lane, int part, std::uint64_t round, const QueuePoint& point) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<int, const QueuePoint*>>& lanes = handed_over_[part];
  lanes.emplace_back(lane, &point);
  if (static_cast<int>(lanes.size()) < replicas_.lane_count()) return;
  ranks_->post(sum_of(part, round), [this, part, all = std::exchange(lanes, {})] {
    for (const auto& [from, there] : all) domains_[replicas_.domain_of(from)]->queue->wait_for(*there);
    issue_part(part);
  });
}

void DeviceReduction::wait_for_parts() { ranks_->wait(); }

void DeviceReduction::issue_part(int part) {
  std::vector<std::uint64_t>& marks = own_work_.emplace_back();
  for (const auto& domain : domains_) {
    issue_sum(*domain, parts_[part]);
    marks.push_back(domain->queue->mark());
  }
}

// What a rank gives to the others, in `exchanged`.
void DeviceReduction::issue_sum(Domain& domain, const BucketPart& part) {
  BucketPass pass = pass_over(domain);
  pass.divides = false;
  pass.begin = part.begin;
  pass.end = part.end;
  pass.tail = part.tail;
  const auto* const buckets = reinterpret_cast<const void* const*>(domain.buckets.data_ptr<std::int64_t>());
  const auto* const lane_of = domain.lane_of.data_ptr<int>();
  if (options_.mode != "reference") {
    pass.inputs = buckets;
    pass.lane_of = lane_of;
    pass.input_count = static_cast<int>(domain.lanes.size());
    pass.out = domain.exchanged.data_ptr();
    return domain.queue->run([&queue = *domain.queue, pass] { queue.add_buckets(pass); });
  }
  domain.queue->run([&domain] { domain.exchanged.zero_(); });
  for (std::size_t i = 0; i < domain.lanes.size(); ++i) {
    pass.inputs = buckets + i;
    pass.lane_of = lane_of + i;
    pass.input_count = 1;
    pass.out = domain.exchanged[domain.lanes[i]].data_ptr();
    domain.queue->run([&queue = *domain.queue, pass] { queue.add_buckets(pass); });
  }
}

void DeviceReduction::issue(RoundOfStep round) {
  if (pending_.size() == kSlots) throw Error(Exit::kInternal, "too many rounds are under way");
  if (ranks_ != nullptr) {
    const int last = static_cast<int>(parts_.size()) - 1;
    ranks_->launch(sum_of(last, round.number), [&] { issue_part(last); });
  }
  for (const auto& one : domains_) {
    Domain& domain = *one;
    BucketPass pass = pass_over(domain);
    const at::Tensor& inputs = ranks_ != nullptr ? domain.exchanged_rows : domain.buckets;
    pass.inputs = reinterpret_cast<const void* const*>(inputs.data_ptr<std::int64_t>());
    pass.input_count = static_cast<int>(inputs.numel());
    pass.lane_of = ranks_ != nullptr ? nullptr : domain.lane_of.data_ptr<int>();
    pass.out = replicas_.reduced(domain.index).data_ptr();
    pass.sums = domain.sums.defined() ? domain.sums.data_ptr<double>() : nullptr;
    pass.first = round.first;
    pass.last = round.last;
    domain.queue->run([&queue = *domain.queue, pass] { queue.add_buckets(pass); });
  }
  // All domains have the same: one tells.
  Domain& domain = *domains_[0];
  domain.queue->run([this, &domain, &told = domain.told[issued_ % kSlots]] {
    const BucketLayout& layout = replicas_.layout();
    domain.telling.narrow(0, 0, kOutcomeCount).copy_(domain.outcome);
    domain.telling.narrow(0, kOutcomeCount, layout.tail())
        .copy_(replicas_.reduced(0).narrow(0, layout.parameters, layout.tail()));
    told.copy_(domain.telling, /*non_blocking=*/true);
  });
  pending_.push_back({domain.queue->mark(), round.number, std::exchange(own_work_, {})});
  ++issued_;
}

RoundOutcome DeviceReduction::outcome() {
  const std::size_t slot = (issued_ - pending_.size()) % kSlots;
  const Pending pending = pending_.front();
  pending_.pop_front();
  for (std::size_t part = 0; part < pending.own_work.size(); ++part) {
    // Others are late only when this process's own work is done.
    for (std::size_t d = 0; d < domains_.size(); ++d)
      wait_until(*domains_[d]->queue, pending.own_work[part][d], domains_[d]->patience);
    ranks_->finish({pending.number, static_cast<int>(part), static_cast<int>(parts_.size())});
  }
  wait_until(*domains_[0]->queue, pending.mark, domains_[0]->patience);
  const double* const told = domains_[0]->told[slot].const_data_ptr<double>();
  return {.n = told[kOutcomeN],
          .norm = told[kOutcomeNorm],
          .tail = {told + kOutcomeCount, told + domains_[0]->telling.numel()}};
}

double DeviceReduction::reduce(Replicas&, RoundOfStep round) {
  issue(round);
  const double n = outcome().n;
  wait();
  return n;
}

void DeviceReduction::wait() {
  for (const auto& domain : domains_) wait_for_all(*domain->queue, domain->patience);
}

std::string DeviceReduction::apart(const Replicas& replicas) { return weights_apart(world_, replicas); }

}  // namespace lanewise
