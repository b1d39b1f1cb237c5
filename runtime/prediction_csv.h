// Predictions as lines of a CSV file, a row each:
//
//   phase,step,stream,run,seq,time,weight,y0,…,p0,…
//
// step: applied to the weights that predicted; time in nanoseconds; y and p, target and prediction, in original units.
// A missing target is empty. Fillers have no line.
#pragma once

#include <string>
#include <string_view>

#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

class PredictionCsv {
 public:
  PredictionCsv(const StreamTable& streams, const Units& units) : streams_(streams), units_(units) {}

  // The lines of a batch, behind the header where asked for.
  std::string lines(const Prediction& prediction, std::string_view phase, std::uint64_t step, bool header) const;

 private:
  const StreamTable& streams_;
  const Units& units_;
};

}  // namespace lanewise
