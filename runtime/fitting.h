// The parameters of a `normalize` node and the gathering of its statistics, shared by the node and by the fitting
// before step 0 (runtime/fit.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/fields.h"
#include "runtime/moments.h"
#include "runtime/services.h"
#include "runtime/values.h"

namespace lanewise {

struct NormalizeParams {
  std::string mode = "fit";
  std::optional<std::int64_t> fit_samples;
  bool target = true;

  void fields(Fields& f) {
    f.add("mode", &mode, "fit: statistics of the training rows, taken before step 0; running: of the samples so far")
        .one_of({"fit", "running"});
    f.add("fit_samples", &fit_samples, "fit on this many samples only, as an endless stream needs").at_least(1);
    f.add("target", &target, "scale the target as well");
  }
};

// Gathers the statistics of one stream.
class Fitting {
 public:
  explicit Fitting(bool target) : target_(target) {}

  // Takes x of every row, and y of the rows that count (weight above 0) unless it holds class numbers.
  void add(const Sample& sample);
  Statistics statistics() const;

  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  const bool target_;
  Moments x_, y_;
};

}  // namespace lanewise
