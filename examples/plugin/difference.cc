// difference: how much each value has changed since the sample before.
//
//   x'[t] = scale · (x[t] - x[t-1])
//
//   { "id": "diff", "repeat": 4, "type": "difference", "in": [ { "from": "gen", "take": 1 } ], "params": { "scale": 10
//   } }
//
// Where a sequence starts it is 0. A filler passes as it is.
#include "nodes/node_type.h"
#include "nodes/per_sample.h"
#include "runtime/tensors.h"

namespace {

using namespace lanewise;

class Difference final : public PerSample {
 public:
  struct Params {
    double scale = 1;
    void fields(Fields& f) { f.add("scale", scale, "what the change is multiplied by").above(0); }
  };

  Difference(const Params& params, const NodeContext& context) : PerSample(context), scale_(params.scale) {}

 private:
  std::optional<Sample> apply(Sample sample) override {
    if (sample.tag.filler) return sample;
    if (sample.tag.start) last_ = sample.x;
    sample.x = sample.x.sub(std::exchange(last_, sample.x)).mul(scale_);
    return sample;
  }

  nlohmann::json save() const override { return save_tensor(last_); }
  void load(const nlohmann::json& saved) override { last_ = load_tensor(saved); }

  const double scale_;
  at::Tensor last_;  // x of the sample before
};

}  // namespace

// It tells no infer(): what leaves has the shapes of what comes.
NodeType difference() {
  return node_type<Difference>("difference", "how much each value has changed since the sample before",
                               Role::kPerSample, {{"sample", "sample"}}, {{"sample", "sample"}});
}
