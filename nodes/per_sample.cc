#include "nodes/per_sample.h"

#include <fmt/format.h>

#include "graph/error.h"

namespace lanewise {

void PerSample::fire(Firing& firing) {
  if (firing.input(0).is_end()) {
    if (taken_ > 0 && !given_) give_nothing();
    return firing.end();
  }
  Sample taken = firing.input(0).take<Sample>();
  if (taken.tag.run != run_) {
    if (taken_ > 0 && !given_) give_nothing();
    run_ = taken.tag.run;
    taken_ = 0;
    given_ = false;
  }
  ++taken_;
  if (taken.tag.record) record_ = std::make_shared<ChainRecord>(id_, state(), std::move(taken.tag.record));
  taken.tag.record = nullptr;
  std::optional<Sample> sample = apply(std::move(taken));
  if (!sample) return firing.absorb();
  given_ = true;
  sample->tag.seq = seq_++;
  if (skip_ > 0) {
    --skip_;
    record_ = nullptr;  // it belongs to the sample that is dropped; a later one would put it at the wrong seq
    return firing.absorb();
  }
  sample->tag.record = std::exchange(record_, nullptr);
  firing.emit(0, Packet::of(std::move(*sample)));
}

void PerSample::give_nothing() const {
  throw Error(Exit::kData,
              fmt::format("{} gave no sample from a whole run of its stream, which has {}; it asks for more than that",
                          id_, taken_ == 1 ? "1 sample" : fmt::format("{} samples", taken_)));
}

bool PerSample::skip(std::uint64_t packets) {
  skip_ = packets;
  return true;
}

nlohmann::json PerSample::state() const {
  return {{"seq", seq_}, {"run", run_}, {"taken", taken_}, {"given", given_}, {"node", save()}};
}

void PerSample::restore(const nlohmann::json& state) {
  seq_ = state.at("seq");
  run_ = state.at("run");
  taken_ = state.at("taken");
  given_ = state.at("given");
  load(state.at("node"));
}

}  // namespace lanewise
