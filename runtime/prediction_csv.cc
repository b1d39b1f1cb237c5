#include "runtime/prediction_csv.h"

#include <ATen/ATen.h>

#include <iterator>

#include "runtime/tensors.h"

namespace lanewise {
namespace {

// RFC 4180: quoted where it must be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

void append_values(std::string& out, const at::Tensor& values) {
  for (const double v : tensor_values(values)) out += std::isnan(v) ? "," : fmt::format(",{}", v);
}

std::string header_line(std::int64_t targets, std::int64_t answers) {
  std::string line = "phase,step,stream,run,seq,time,weight";
  for (std::int64_t i = 0; i < targets; ++i) line += fmt::format(",y{}", i);
  for (std::int64_t i = 0; i < answers; ++i) line += fmt::format(",p{}", i);
  return line + "\n";
}

}  // namespace

std::string PredictionCsv::lines(const Prediction& p, std::string_view phase, std::uint64_t step, bool header) const {
  const std::vector<Tag>& rows = p.batch->rows;
  const at::Tensor y = p.batch->y.flatten(0, 1), prediction = p.prediction.flatten(0, 1);
  const bool real_target = at::isFloatingType(y.scalar_type());
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tag& row = rows[i];
    if (row.filler) continue;
    const auto index = static_cast<std::int64_t>(i);
    // Class scores have no original units; everything else is shaped like the target.
    const bool like_target = prediction[index].sizes() == y[index].sizes() && real_target;
    const at::Tensor target = real_target ? units_.original(row.stream, y[index]) : y[index];
    const at::Tensor answer = like_target ? units_.original(row.stream, prediction[index]) : prediction[index];
    if (header) out += header_line(target.numel(), answer.numel());
    header = false;
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{}", phase, step, csv_field(streams_.name(row.stream)),
                   row.run, row.seq, row.time ? fmt::format("{}", *row.time) : "", row.weight);
    append_values(out, target);
    append_values(out, answer);
    out += '\n';
  }
  return out;
}

}  // namespace lanewise
