#include "nodes/per_sample.h"

namespace lanewise {

void PerSample::fire(Firing& firing) {
  if (firing.input(0).is_end()) return firing.end();
  std::optional<Sample> sample = apply(firing.input(0).take<Sample>());
  if (!sample) return firing.absorb();
  sample->tag.seq = seq_++;
  firing.emit(0, Packet::of(std::move(*sample)));
}

nlohmann::json PerSample::state() const { return {{"seq", seq_}, {"node", save()}}; }

void PerSample::restore(const nlohmann::json& state) {
  seq_ = state.at("seq");
  load(state.at("node"));
}

}  // namespace lanewise
