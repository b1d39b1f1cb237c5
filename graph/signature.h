// What is known before a run about the values on an edge: shapes, and the streams they come from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lanewise {

using Shape = std::vector<std::int64_t>;

std::string to_string(const Shape& shape);  // "[14, 6]"

struct Signature {
  std::optional<Shape> x, y;            // of one sample, without a batch axis; nullopt: unknown until run
  bool integer_target = false;          // y holds class numbers
  std::optional<std::int64_t> classes;  // how many there are, where the source says so
  std::vector<std::string> streams;     // ids of the source nodes whose samples these are, in row order
  std::optional<std::int64_t> length;   // samples of one pass over the streams; nullopt: endless or unknown
  bool endless = false;
  std::optional<std::int64_t> parameters;  // gradients and weights: how many
  // Takes another's streams in, behind its own; the length becomes that of the shortest.
  void append(const Signature& other);
  std::string text() const;  // "x [14, 6], y [1]", "18,049 parameters", "unknown until run"
};

}  // namespace lanewise
