#include "nodes/source.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "graph/plan.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

bool all_valid(const at::Tensor& y) {
  for (const double v : tensor_values(y)) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

Random stream_of_numbers(const NodeContext& context) {
  const RandomSeed& seed = context.services.get<RandomSeed>();
  return Random(seed.seed, seed.purpose, context.node.id);
}

}  // namespace

Source::Source(const NodeContext& context, const SourceParams& params, std::optional<std::int64_t> samples)
    : id_(context.node.id),
      rules_(context.services.get<SourceRules>()),
      random_(stream_of_numbers(context)),
      end_rule_(rules_.evaluating ? rules_.end_rule : params.on_end.value_or(rules_.end_rule)),
      stream_(context.services.get<StreamTable>().index(context.node.id)),
      weight_(params.weight),
      max_gap_(params.max_gap),
      samples_(samples) {}

at::Tensor Source::make(TensorRing& ring, std::span<const double> values, at::IntArrayRef shape) const {
  at::Tensor tensor = ring.next(shape, rules_.dtype);
  copy_values(values, tensor);
  return tensor;
}

void Source::begin_run() {
  ++run_;
  given_ = 0;
  last_.reset();
  time_.reset();
}

// The next sample of this pass.
Source::Given Source::advance(Sample& sample) {
  if (samples_ && given_ >= *samples_) return Given::kEnd;
  sample.tag.weight = weight_;
  if (const Given given = next(sample); given != Given::kSample) return given;
  sample.tag.start = sample.tag.start || given_ == 0;
  if (const std::optional<std::int64_t> time = sample.tag.time) {
    const bool gap = max_gap_ && time_ && static_cast<double>(*time) - static_cast<double>(*time_) > *max_gap_ * 1e9;
    sample.tag.start = sample.tag.start || gap;
    time_ = time;
  }
  ++given_;
  if (rules_.evaluating) {
    sample.known = known();
    if (at::isFloatingType(sample.y.scalar_type()) && all_valid(sample.y)) last_ = sample.y;
  }
  like_x_ = sample.x;
  like_y_ = sample.y;
  return Given::kSample;
}

// The next sample, of this pass or the next, or a filler. kEnd: the stream ends.
Source::Given Source::make(Sample& sample) {
  while (!over_) {
    const Given given = advance(sample);
    if (given == Given::kSample) {
      sample.tag.ended = rules_.passes && end_rule_ == "restart" && run_ >= static_cast<std::uint64_t>(*rules_.passes);
    }
    if (given != Given::kEnd) return given;
    if (given_ == 0 && run_ > 0) {
      throw Error(Exit::kData,
                  fmt::format("stream \"{}\" had samples in run {} and has none in the next", id_, run_ - 1));
    }
    if (given_ == 0)
      throw Error(Exit::kData, fmt::format("stream \"{}\" has no sample at all; ask for rows that its data has", id_));
    if (end_rule_ == "first" || end_rule_ == "error") return Given::kEnd;
    if (end_rule_ == "restart") {
      begin_run();
      rewind();
    } else {
      over_ = true;
      like_x_ = at::zeros_like(like_x_);
      like_y_ = at::zeros_like(like_y_);
    }
  }
  sample.x = like_x_;
  sample.y = like_y_;
  sample.tag.filler = true;
  sample.tag.ended = true;
  sample.tag.weight = 0;
  return Given::kSample;
}

void Source::fire(Firing& firing) {
  Sample sample;
  const bool recorded = rules_.record_every > 0 && skip_ == 0 && seq_ > 0 && seq_ % rules_.record_every == 0;
  if (recorded) sample.tag.record = std::make_shared<ChainRecord>(id_, state(), nullptr);
  const Given given = make(sample);
  if (given == Given::kEnd) return firing.end();
  if (given == Given::kLater) return;
  sample.tag.stream = stream_;
  sample.tag.run = run_;
  sample.tag.seq = seq_++;
  if (skip_ > 0) {
    --skip_;
    return firing.absorb();
  }
  firing.emit(0, Packet::of(std::move(sample)));
}

bool Source::skip(std::uint64_t packets) {
  skip_ = packets;
  return true;
}

nlohmann::json Source::state() const {
  nlohmann::json state = {{"run", run_},
                          {"seq", seq_},
                          {"given", given_},
                          {"over", over_},
                          {"x", nullptr},
                          {"y", nullptr},
                          {"last", save_tensor(last_)},
                          {"time", nullptr},
                          {"source", save()}};
  if (time_) state["time"] = *time_;
  if (like_x_.defined()) {
    state["x"] = {{"shape", shape_of(like_x_)}, {"type", static_cast<int>(like_x_.scalar_type())}};
    state["y"] = {{"shape", shape_of(like_y_)}, {"type", static_cast<int>(like_y_.scalar_type())}};
  }
  return state;
}

void Source::restore(const nlohmann::json& state) {
  run_ = state.at("run");
  seq_ = state.at("seq");
  given_ = state.at("given");
  over_ = state.at("over");
  const auto like = [](const nlohmann::json& saved) {
    if (saved.is_null()) return at::Tensor();
    return at::zeros(saved.at("shape").get<Shape>(), static_cast<at::ScalarType>(saved.at("type").get<int>()));
  };
  like_x_ = like(state.at("x"));
  like_y_ = like(state.at("y"));
  last_ = load_tensor(state.at("last"));
  time_ = state.at("time").is_null() ? std::nullopt : std::optional<std::int64_t>(state.at("time"));
  load(state.at("source"));
}

}  // namespace lanewise
