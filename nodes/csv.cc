// csv: the rows of a CSV file, one sample a row, in the order of the file.
//
//   y = target columns of row t        x = feature columns of row t - horizon        t over `rows`, half-open, from 0
//
//   { "id": "gen", "type": "csv", "params": { "path": "delays.csv", "features": ["delay", "temp"], "target": ["delay"],
//                                             "horizon": 1, "rows": "0:300" } }
//
// A missing feature is the one of the row before; before a column's first value it is NaN, which a normalize node turns
// into the mean. A row with a missing target has weight 0. `context` sends that many rows before the range with weight
// 0, to fill windows and recurrent state. A target whose feature row lies before the file is not sent.
#include <ATen/ATen.h>

#include <set>

#include "graph/text.h"
#include "nodes/builtin.h"
#include "nodes/csv_reader.h"
#include "nodes/csv_table.h"
#include "nodes/csv_values.h"
#include "nodes/node_type.h"
#include "nodes/source.h"
#include "runtime/tensors.h"

namespace lanewise {
namespace {

// Whether every path from a node to the joins leads through a node that turns NaN into numbers.
bool missing_is_filled(const Plan& plan, const PlanNode& node) {
  for (const std::vector<int>& port : node.outputs) {
    for (const int edge : port) {
      const PlanNode& below = plan.nodes[plan.edges[edge].to];
      if (below.type->fills_missing) continue;
      if (below.type->role != Role::kPerSample || !missing_is_filled(plan, below)) return false;
    }
  }
  return true;
}

class Csv final : public Source {
 public:
  struct Params : CsvColumns, SourceParams {
    std::int64_t horizon = 1, context = 0;
    std::string rows;

    void fields(Fields& f) {
      CsvColumns::fields(f);
      f.add("horizon", &horizon, "rows between the features and their target").at_least(0).unit("rows");
      f.add("rows", &rows, "target rows, \"a:b\" without b, counted from 0; \"a:\", \":b\", or \"\" for all");
      f.add("context", &context, "rows before the range that are sent with weight 0").at_least(0).unit("rows");
      SourceParams::fields(f);
      if (!parse_rows(rows)) {
        f.problem("rows",
                  fmt::format("rows {} are no range; write \"0:300\", \"300:\", \":300\" or \"\"", in_quotes(rows)));
      }
    }
  };

  Csv(const Params& params, const NodeContext& context)
      : Source(static_cast<const SourceParams&>(params), context),
        params_(params),
        range_(parse_rows(params.rows).value_or(RowRange{})),
        filled_(missing_is_filled(context.plan, context.node)) {
    rewind();
  }

 private:
  Given next(Sample& sample) override {
    if (!table_) table_ = CsvTable::shared(params_);
    if (row_ >= std::min(table_->rows(), range_.end.value_or(table_->rows()))) return Given::kEnd;
    const std::span<const double> x = table_->features(row_ - params_.horizon), y = table_->target(row_);
    if (!filled_) require_present(x);
    sample.x = make_x(x, {static_cast<std::int64_t>(x.size())});
    const bool missing = std::ranges::any_of(y, [](double v) { return std::isnan(v); });
    if (params_.classes) {
      sample.y = at::full({1}, missing ? 0 : static_cast<std::int64_t>(y[0]), at::kLong);
    } else {
      sample.y = make_y(y, {static_cast<std::int64_t>(y.size())});
    }
    if (missing || row_ < range_.begin) sample.tag.weight = 0;
    sample.tag.time = table_->time(row_);
    ++row_;
    return Given::kSample;
  }

  // The features' row is known when a target is forecast, and with no horizon the row before: never the target itself.
  at::Tensor known() const override {
    const std::int64_t from = row_ - 1 - std::max<std::int64_t>(1, params_.horizon);
    if (params_.classes || from < 0) return {};
    const std::span<const double> last = table_->last_target(from);
    return make_tensor(last, {static_cast<std::int64_t>(last.size())}, dtype());
  }

  void require_present(std::span<const double> x) const {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isnan(x[i])) continue;
      throw Error(Exit::kData,
                  fmt::format("{}:{}: column {} has no value up to this row; a normalize node behind {} would "
                              "turn it into the mean",
                              escaped(params_.path.text), table_->line(row_ - params_.horizon),
                              in_quotes(params_.features[i]), id()));
    }
  }

  void rewind() override { row_ = std::max({std::int64_t{0}, params_.horizon, range_.begin - params_.context}); }
  nlohmann::json save() const override { return row_; }
  void load(const nlohmann::json& saved) override { row_ = saved; }

  const Params params_;
  const RowRange range_;
  const bool filled_;                      // no NaN among the features gets as far as a model
  std::shared_ptr<const CsvTable> table_;  // from the first sample on
  std::int64_t row_ = 0;                   // of the next target
};

// What the parameters say by themselves. False: the file cannot be read by them.
bool check_params(InferContext& context, const Csv::Params& params) {
  const bool separates =
      params.separator == "tab" ||
      (params.separator.size() == 1 && std::string("\"\r\n").find(params.separator) == std::string::npos);
  if (!separates) {
    context.problem(fmt::format("separator {} must be one ASCII character, no quote and no line end, or \"tab\"",
                                in_quotes(params.separator)),
                    "separator");
  }
  if (params.path.text.empty()) context.problem("path is empty; name the CSV file", "path");
  const std::set<std::string> features(params.features.begin(), params.features.end());
  const std::set<std::string> target(params.target.begin(), params.target.end());
  if (features.empty()) context.problem("features name no column", "features");
  if (target.empty()) context.problem("target names no column", "target");
  if (features.size() < params.features.size()) context.problem("features name a column twice", "features");
  if (target.size() < params.target.size()) context.problem("target names a column twice", "target");
  if (params.classes && params.target.size() > 1) context.problem("classes need a target of one column", "target");
  for (const std::string& name : target) {
    if (params.horizon == 0 && features.contains(name)) {
      context.problem(
          fmt::format("with horizon 0 the target {} is among its own features; give a horizon of at least 1, or "
                      "take it out of one of them",
                      in_quotes(name)),
          "features");
    }
  }
  return separates && !params.path.text.empty();
}

// What the header of the file says. Reads no further.
void check_header(InferContext& context, const Csv::Params& params) {
  try {
    const CsvRow header = read_csv_header(params.path.text, params.separator_char());
    const std::string file = escaped(params.path.text);
    const auto check = [&](const std::string& name, const std::string& param) {
      const int at = find_column(header.fields, name);
      if (at == -1) {
        context.data_problem(
            fmt::format("{} has no column {}{}", file, in_quotes(name), did_you_mean(name, header.fields)), param);
      }
      if (at == -2) context.data_problem(fmt::format("{} has two columns {}", file, in_quotes(name)), param);
    };
    for (const std::string& name : params.features) check(name, "features");
    for (const std::string& name : params.target) check(name, "target");
    if (params.time) check(*params.time, "time");
  } catch (const Error& error) {
    context.data_problem(error.what(), "path");
  }
}

void infer(InferContext& context) {
  const auto params = context.params<Csv::Params>();
  if (check_params(context, params)) check_header(context, params);
  context.node.signatures = {Signature{.x = Shape{static_cast<std::int64_t>(params.features.size())},
                                       .y = Shape{static_cast<std::int64_t>(params.target.size())},
                                       .integer_target = params.classes.has_value(),
                                       .classes = params.classes,
                                       .streams = {context.node.id}}};
}

}  // namespace

NodeType csv() {
  return node_type<Csv>("csv", "the rows of a CSV file", Role::kSource, {}, {{"sample", "sample"}}, infer);
}

}  // namespace lanewise
