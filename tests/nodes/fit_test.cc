#include "runtime/fit.h"

#include "nodes/builtin.h"
#include "tests/check.h"
#include "tests/nodes/node_runner.h"

namespace lanewise {
namespace {

// " MEAN/SCALE …"; what rounding alone keeps from 0 is 0.
std::string text(const std::vector<double>& mean, const std::vector<double>& scale) {
  std::string all;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    all += fmt::format(" {:.6g}/{:.6g}", std::abs(mean[i]) < 1e-12 ? 0 : mean[i], scale[i]);
  }
  return all;
}

std::string text(const Statistics& s) { return "x" + text(s.x_mean, s.x_scale) + " | y" + text(s.y_mean, s.y_scale); }

std::string fitted(Bench& bench, const std::string& id) {
  fit_normalizers(bench.plan, bench.services, bench.normalization, [] {});
  return text(*bench.normalization.find(id));
}

// A csv source and what follows it.
Bench csv_bench(const TemporaryFile& file, nlohmann::json source, nlohmann::json norm = nlohmann::json::object()) {
  source["path"] = file.path();
  return Bench({{"gen0", csv(), source}, {"norm0", normalize(), norm, {"gen0"}}}, {.end_rule = "restart", .passes = 3});
}

TEST_CASE("fit: mean and population deviation of the training rows, missing ones left out, constant columns by 1") {
  const TemporaryFile file("a,c,b\n1,5,10\n,5,20\n5,5,\n9,5,40\n100,6,1000\n");
  Bench bench = csv_bench(file, {{"features", {"a", "c"}}, {"target", {"b"}}, {"rows", "0:4"}});
  // Targets of rows 1 to 3, features of rows 0 to 2: a is 1, 1 (carried forward), 5; b is 20, missing, 40.
  CHECK(fitted(bench, "norm0") == "x 2.33333/1.88562 5/1 | y 30/10");
}

TEST_CASE("fit: rows of weight 0 count for x alone") {
  const TemporaryFile file("a,b\n1,10\n2,20\n3,30\n4,40\n");
  Bench bench = csv_bench(file, {{"features", {"a"}}, {"target", {"b"}}, {"rows", "2:"}, {"context", 1}});
  CHECK(fitted(bench, "norm0") == "x 2/0.816497 | y 35/5");
}

TEST_CASE("fit: values before a column's first do not count; a column without any has mean 0") {
  const TemporaryFile file("a,c,b\n,,10\n2,,20\n4,,30\n");
  Bench bench = csv_bench(file, {{"features", {"a", "c"}}, {"target", {"b"}}});
  CHECK(fitted(bench, "norm0") == "x 2/1 0/1 | y 25/5");
}

TEST_CASE("fit: on the first samples when told how many, and not on targets when told not to scale them") {
  Bench bench({{"gen0", constant(), {{"value", 0}, {"ramp", 2}}},
               {"norm0", normalize(), {{"fit_samples", 3}, {"target", false}}, {"gen0"}}});
  CHECK(fitted(bench, "norm0") == "x 2/1.63299 | y");
}

TEST_CASE("fit: class numbers are not fitted") {
  const TemporaryFile file("a,b\n1,0\n2,1\n3,1\n");
  Bench bench = csv_bench(file, {{"features", {"a"}}, {"target", {"b"}}, {"classes", 2}});
  CHECK(fitted(bench, "norm0") == "x 1.5/0.5 | y");
}

TEST_CASE("fit: a node behind windows and behind another normalize node sees what they send") {
  Bench bench({{"gen0", constant(), {{"value", 0}, {"ramp", 1}, {"samples", 4}}},
               {"norm0", normalize(), nlohmann::json::object(), {"gen0"}},
               {"win0", window(), {{"length", 3}}, {"norm0"}},
               {"norm1", normalize(), nlohmann::json::object(), {"win0"}}},
              {.dtype = at::kDouble});
  CHECK(fitted(bench, "norm0") == "x 1.5/1.11803 | y 1.5/1.11803");
  // Windows 0 1 2 and 1 2 3, targets 2 and 3, in the units of norm0.
  CHECK(fitted(bench, "norm1") == "x 0/0.856349 | y 0.894427/0.447214");
  // Back through both: 2 is 0.894427 - 0.447214 in the units of norm0, hence -1 in those of norm1.
  const Units units(bench.plan, *bench.streams, bench.normalization);
  const at::Tensor original = units.original(0, at::full({1}, -1.0, at::kDouble));
  CHECK(original.item<double>() == doctest::Approx(2));
}

TEST_CASE("fit: leaves `running` nodes to themselves and disturbs no later run") {
  Bench bench({{"gen0", ar1(), {{"samples", 50}}}, {"norm0", normalize(), {{"mode", "running"}}, {"gen0"}}});
  NodeRunner before(bench, "gen0");
  const std::vector<Sample> first = before.take(10);
  fit_normalizers(bench.plan, bench.services, bench.normalization, [] {});
  CHECK(bench.normalization.table().empty());
  CHECK(bench.services.get<SourceRules>().end_rule == bench.rules.end_rule);
  NodeRunner after(bench, "gen0");
  CHECK(same(after.take(10).back(), first.back()));
}

TEST_CASE("fit: what goes wrong names the node") {
  const TemporaryFile file("a,b\n1,10\n2,x\n");
  Bench bench = csv_bench(file, {{"features", {"a"}}, {"target", {"b"}}});
  CHECK(file.masked(error_of([&] { fitted(bench, "norm0"); })) ==
        "4: gen0, while fitting: FILE:3: column \"b\": \"x\" is no number; is it to be listed in \"missing\"?");
  Bench empty({{"gen0", constant(), {{"samples", 2}}},
               {"win0", window(), {{"length", 3}}, {"gen0"}},
               {"norm0", normalize(), nlohmann::json::object(), {"win0"}}});
  CHECK(error_of([&] { fitted(empty, "norm0"); }) == "4: norm0 got no sample to fit on");
}

}  // namespace
}  // namespace lanewise
