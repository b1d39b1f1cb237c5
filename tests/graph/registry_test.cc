#include "graph/registry.h"

#include <doctest/doctest.h>

#include "graph/signature.h"
#include "tests/graph/test_registry.h"

namespace lanewise {
namespace {

TEST_CASE("registry: the nearest name is meant by a slip, not by another word") {
  const std::vector<std::string> names{"pair", "compute", "csv", "optimizer", "lr", "x"};
  CHECK(nearest("pari", names) == "pair");
  CHECK(nearest("PAIR", names) == "pair");
  CHECK(nearest("compte", names) == "compute");
  CHECK(nearest("optimiser", names) == "optimizer");
  CHECK(nearest("cvs", names) == "csv");
  CHECK(nearest("rl", names) == "lr");
  CHECK(nearest("y", names) == "");
  CHECK(nearest("", names) == "");
  CHECK(nearest("transformer", names) == "");
  CHECK(nearest(std::string(1'000'000, 'p'), names) == "");
  CHECK(did_you_mean("pari", names) == "; did you mean \"pair\"?");
  CHECK(did_you_mean("zzz", names) == "");
  CHECK(nearest("ab", {"abc", "abd"}) == "abc");
}

TEST_CASE("registry: types are found by name") {
  const Registry registry = test_registry();
  CHECK(registry.find_node("pair")->help == "joins streams by seq");
  CHECK(registry.find_node("pear") == nullptr);
  CHECK(registry.find_model("mlp") != nullptr);
  CHECK(registry.find_model("net") == nullptr);
  CHECK(to_string(Role::kPerSample) == "per-sample");
}

TEST_CASE("registry: services are found by type") {
  Services services;
  int number = 3;
  services.add(number);
  CHECK(&services.get<int>() == &number);
  CHECK(services.find<double>() == nullptr);
  CHECK_THROWS_AS(services.get<double>(), Error);
}

TEST_CASE("signature: shapes, counts and what is unknown are told in words") {
  Signature s;
  CHECK(s.text() == "unknown until run");
  s.y = Shape{2};
  CHECK(s.text() == "y [2]");
  s.y = std::nullopt;
  s.x = Shape{14, 6};
  CHECK(s.text() == "x [14, 6], y unknown until run");
  s.y = Shape{};
  CHECK(s.text() == "x [14, 6], y []");
  s.y = Shape{1};
  s.integer_target = true;
  CHECK(s.text() == "x [14, 6], y [1] of classes");
  for (const auto& [n, text] : {std::pair<std::int64_t, std::string>{7, "7 parameters"},
                                {999, "999 parameters"},
                                {1000, "1,000 parameters"},
                                {18049, "18,049 parameters"},
                                {1234567, "1,234,567 parameters"}}) {
    s.parameters = n;
    CHECK(s.text() == text);
  }
}

}  // namespace
}  // namespace lanewise
