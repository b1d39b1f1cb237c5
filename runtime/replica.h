// Replicas hold the weights: one flat buffer a memory domain, and for each lane a flat gradient bucket with the leaf
// tensors that autograd fills it through.
//
//   domain:  flat weights  [ p0 | p1 | … ]            each parameter on a 64-byte boundary
//   lane:    leaves        narrow(flat).detach()      share the storage, one set a lane
//            bucket        [ ∇p0 | ∇p1 | … | tail ]   leaves' .grad are views of it
//            buffers       [ b0 | b1 | … ]            its own, in every memory domain (runtime/lane_buffers.h)
//
// The tail carries, per stream, Σ w·r and Σ w, and per lane the flags of enum Flag. Each entry is written by the lane
// that owns it and is zero in every other lane's bucket, so that the sum over lanes is a gather (DESIGN: training step,
// 4).
//
// With `shared` weights on the host there is one domain; otherwise one a device. Nothing here locks: the graph's edges
// order who writes a bucket or the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/cut.h"
#include "runtime/bucket_places.h"
#include "runtime/lane_buffers.h"
#include "runtime/model.h"
#include "runtime/safetensors.h"

namespace lanewise {

// Where everything lies in a bucket, in elements.
struct BucketLayout : BucketPlaces {
  BucketLayout(const std::vector<ParameterSpec>& specs, int stream_count, int lane_count, at::ScalarType dtype);

  std::vector<std::int64_t> offsets;  // of each parameter
};

struct ReplicaOptions {
  at::ScalarType dtype = at::kFloat;
  // The memory domain of each own lane, from 0 in the order of their first lanes; empty: all are in one.
  std::vector<int> domains;
  std::vector<at::Device> devices;  // of each domain; empty: all on the host
  int lanes = 1, streams = 1;       // of all processes
  std::optional<LaneRange> own;     // those of this process; absent: all
  std::uint64_t seed = 0;           // of the initial weights
  bool average_buffers = false;     // after each step, over the lanes
};

class Replicas {
 public:
  // `make_model` is called once an own lane. Initial weights are equal in every domain and process.
  Replicas(const std::function<std::unique_ptr<Model>()>& make_model, const std::string& model_name,
           ReplicaOptions options);

  const BucketLayout& layout() const { return layout_; }
  const std::vector<ParameterSpec>& specs() const { return lanes_.front().model->parameters(); }
  // The lanes that are here: first_lane(), first_lane() + 1, …
  int first_lane() const { return own_.begin; }
  int lane_count() const { return static_cast<int>(lanes_.size()); }
  int domain_count() const { return static_cast<int>(domains_.size()); }

  // The domain that holds a lane's weights.
  int domain_of(int lane) const { return domain_of_[lane - own_.begin]; }

  // A lane's model, bound to leaves whose gradients go to bucket(lane).
  Model& model(int lane) { return *lanes_[lane - own_.begin].model; }
  Model& any_model() { return *lanes_.front().model; }
  at::Tensor& bucket(int lane) { return lanes_[lane - own_.begin].bucket; }
  std::span<const at::Tensor> leaves(int lane) const { return lanes_[lane - own_.begin].leaves; }
  LaneBuffers& buffers() { return buffers_; }
  const LaneBuffers& buffers() const { return buffers_; }

  // A domain's flat weights (padded), and where the reduction puts the gradient for it (a whole bucket, tail included).
  at::Tensor& weights(int domain) { return domains_[domain].weights; }
  at::Tensor& reduced(int domain) { return domains_[domain].reduced; }

  // To be called after weights(domain) was changed by an op that autograd does not see (the fused optimizers): a
  // backward through a forward from before then raises.
  void mark_changed(int domain);

  // Compares the domains' weights, which are to be equal bit for bit. Throws Error(kDevice) naming the first tensor
  // that is not.
  void verify() const;

  // Parameter i of a domain, a view, where the domain is.
  at::Tensor parameter(int i, int domain = 0) const;
  // A domain's parameters, views where it is on the host and copies else, and the lanes' mean of each buffer, in the
  // order and with the names and dtypes of a state dict.
  std::vector<NamedTensor> state_dict(int domain = 0) const;
  // SHA-256 of each parameter's raw bytes, hex, in the order of specs().
  std::vector<std::string> parameter_sha256(int domain = 0) const;
  // SHA-256 over the raw bytes of state_dict(), hex.
  std::string weights_sha256(int domain = 0) const;

 private:
  struct Lane {
    std::unique_ptr<Model> model;
    std::vector<at::Tensor> leaves;
    at::Tensor bucket;
  };
  struct Domain {
    at::Tensor weights, reduced;
  };
  const LaneRange own_;
  std::vector<int> domain_of_;
  std::vector<Lane> lanes_;
  BucketLayout layout_;
  std::vector<Domain> domains_;
  LaneBuffers buffers_;
};

}  // namespace lanewise
