// A trained model at work on streams: what `lanewise eval` and `predict` do with a run's checkpoint.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "graph/spec.h"
#include "runtime/checkpoint.h"

namespace lanewise {

struct InferenceOptions {
  int threads = 1;
  std::function<int()> signal = [] { return 0; };  // as RunOptions::signal; Error(kStopped) when one comes
  std::function<void(const std::string& line)> say = [](const std::string&) {};  // notes for the user
};

// Evaluates by plans.evaluate, which must be there: {"step", "loss", "mse", …} as a line of evaluations.jsonl.
nlohmann::ordered_json evaluate_checkpoint(const Plans& plans, const Checkpoint& checkpoint,
                                           const InferenceOptions& options);

// Predicts every sample of the streams of plans.evaluate (PlanOptions::predict), in order, with the normalisation of
// the training; recurrent state begins with zeros and is carried as in the training. Hands CSV to `write`
// (prediction_csv.h).
void predict_by_checkpoint(const Plans& plans, const Checkpoint& checkpoint, const InferenceOptions& options,
                           const std::function<void(std::string_view)>& write);

}  // namespace lanewise
