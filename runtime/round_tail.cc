#include "runtime/round_tail.h"

namespace lanewise {

void read_tail(Reduced& reduced, double n, std::span<const double> tail, const BucketLayout& layout,
               const LaneTable& lanes) {
  const auto at = [&](std::int64_t index) { return tail[index - layout.parameters]; };
  const auto mean = [](double sum, double weight) -> std::optional<double> {
    if (weight == 0) return std::nullopt;
    return sum / weight;
  };
  reduced.n = n;
  double total = 0;
  reduced.streams.resize(layout.streams);
  reduced.all_ended = true;
  for (int lane = 0; lane < lanes.size(); ++lane) {
    for (const LaneTable::Part& part : lanes.parts(lane)) {
      double sum = 0, weight = 0;
      for (const int s : part.streams) {
        const double l = at(layout.loss_at(s)), w = at(layout.weight_at(s));
        reduced.streams[s] = mean(l, w);
        sum += l;
        weight += w;
      }
      total += sum;
      reduced.lanes.push_back(mean(sum, weight));
    }
    const auto flag = [&](Flag which) { return at(layout.flag_at(lane, which)) != 0; };
    reduced.all_ended = reduced.all_ended && flag(Flag::kEnded);
    reduced.cut = reduced.cut || flag(Flag::kCut);
    reduced.stop = reduced.stop || flag(Flag::kStop);
    if (flag(Flag::kNonFinite)) reduced.non_finite.push_back(lane);
  }
  reduced.loss = mean(total, n);
}

}  // namespace lanewise
