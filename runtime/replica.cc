// Flat weights, gradient buckets and the leaves between them.
#include "runtime/replica.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "graph/sha256.h"
#include "runtime/random.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector register

std::int64_t aligned(std::int64_t elements, at::ScalarType dtype) {
  const std::int64_t unit = kAlignment / static_cast<std::int64_t>(at::elementSize(dtype));
  return (elements + unit - 1) / unit * unit;
}

// The part of a flat buffer that is parameter i, in its shape.
at::Tensor part(const at::Tensor& flat, const BucketLayout& layout, const ParameterSpec& spec, std::size_t i) {
  return flat.narrow(0, layout.offsets[i], element_count(spec.shape)).view(spec.shape);
}

// Drawn in double, element by element in row order, and rounded to the dtype; the same whatever the number of lanes.
void fill_uniform(at::Tensor parameter, Random random, const ParameterSpec& spec) {
  std::vector<double> values(parameter.numel());
  for (double& value : values) value = spec.mean + random.uniform(-spec.bound, spec.bound);
  parameter.copy_(at::from_blob(values.data(), parameter.sizes(), at::kDouble));
}

}  // namespace

BucketLayout::BucketLayout(const std::vector<ParameterSpec>& specs, int stream_count, int lane_count,
                           at::ScalarType dtype) {
  streams = stream_count;
  lanes = lane_count;
  for (const ParameterSpec& spec : specs) {
    offsets.push_back(parameters);
    parameters += aligned(element_count(spec.shape), dtype);
  }
}

Replicas::Replicas(const std::function<std::unique_ptr<Model>()>& make_model, const std::string& model_name,
                   ReplicaOptions options)
    : own_(options.own.value_or(LaneRange{0, options.lanes})),
      domain_of_(options.domains.empty() ? std::vector<int>(own_.count(), 0) : options.domains),
      lanes_([&] {
        std::vector<Lane> lanes(own_.count());
        for (Lane& lane : lanes) lane.model = make_model();
        return lanes;
      }()),
      layout_(specs(), options.streams, options.lanes, options.dtype),
      domains_(domain_of_.empty() ? 1 : std::ranges::max(domain_of_) + 1),
      buffers_(lanes_.front().model->buffers(), options.lanes, own_, options.dtype, options.average_buffers) {
  const auto flat = [&](int domain) {
    return at::TensorOptions(options.dtype).device(options.devices.empty() ? at::kCPU : options.devices[domain]);
  };
  for (int d = 0; d < domain_count(); ++d) {
    domains_[d].weights = at::zeros({layout_.parameters}, flat(d));
    domains_[d].reduced = at::zeros({layout_.size()}, flat(d));
  }
  for (std::size_t i = 0; i < specs().size(); ++i) {
    const ParameterSpec& spec = specs()[i];
    at::Tensor parameter = part(domains_[0].weights, layout_, spec, i);
    if (spec.given.defined()) {
      parameter.copy_(spec.given);
    } else {
      fill_uniform(parameter, Random(options.seed, "init", fmt::format("{}.{}", model_name, spec.name)), spec);
    }
  }
  for (std::size_t d = 1; d < domains_.size(); ++d) domains_[d].weights.copy_(domains_[0].weights);

  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = lanes_[l];
    const Domain& domain = domains_[domain_of_[l]];
    lane.bucket = at::zeros({layout_.size()}, flat(domain_of_[l]));
    for (std::size_t i = 0; i < specs().size(); ++i) {
      // A detached view shares the flat tensor's version counter, which mark_changed() relies on.
      at::Tensor leaf = part(domain.weights, layout_, specs()[i], i).detach().requires_grad_();
      leaf.mutable_grad() = part(lane.bucket, layout_, specs()[i], i);
      lane.leaves.push_back(std::move(leaf));
    }
    lane.model->bind(lane.leaves, buffers_.of(own_.begin + static_cast<int>(l)));
  }
}

void Replicas::mark_changed(int domain) { domains_[domain].weights.unsafeGetTensorImpl()->bump_version(); }

void Replicas::verify() const {
  for (int d = 1; d < domain_count(); ++d) {
    for (std::size_t i = 0; i < specs().size(); ++i) {
      const at::Tensor first = parameter(static_cast<int>(i)).cpu(), other = parameter(static_cast<int>(i), d).cpu();
      if (raw_bytes(first) == raw_bytes(other)) continue;
      throw Error(Exit::kDevice,
                  fmt::format("the copies of the weights have come apart: {} of memory domain {} differs from that "
                              "of domain 0; a device or its memory has failed",
                              specs()[i].name, d));
    }
  }
}

at::Tensor Replicas::parameter(int i, int domain) const {
  return part(domains_[domain].weights, layout_, specs()[i], i);
}

std::vector<NamedTensor> Replicas::state_dict(int domain) const {
  std::vector<NamedTensor> tensors;
  std::size_t buffer = 0;
  const auto add_buffers = [&](std::size_t after) {
    for (; buffer < buffers_.specs().size() && buffers_.specs()[buffer].after == after; ++buffer) {
      tensors.push_back({buffers_.specs()[buffer].name, buffers_.mean(buffer)});
    }
  };
  for (std::size_t i = 0; i < specs().size(); ++i) {
    add_buffers(i);
    tensors.push_back({specs()[i].name, parameter(static_cast<int>(i), domain).cpu()});
  }
  add_buffers(specs().size());
  return tensors;
}

std::vector<std::string> Replicas::parameter_sha256(int domain) const {
  std::vector<std::string> sums;
  for (std::size_t i = 0; i < specs().size(); ++i)
    sums.push_back(sha256_hex(raw_bytes(parameter(static_cast<int>(i), domain).cpu())));
  return sums;
}

std::string Replicas::weights_sha256(int domain) const {
  Sha256 sum;
  for (const NamedTensor& named : state_dict(domain)) sum.add(raw_bytes(named.tensor));
  return sum.hex();
}

}  // namespace lanewise
