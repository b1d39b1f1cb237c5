// A Document is a pipeline file's text as JSON, with the position of every value.
//
// Stricter than JSON: at most 16 MiB, nested at most 64 deep, well-formed UTF-8, no key twice. Laxer in one thing:
// comments from // to the end of a line.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/error.h"

namespace lanewise {

class Document {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  static constexpr int kMaxDepth = 64;

  // Reads `text`; what is wrong is added to `problems`. `file` names it in places.
  Document(std::string text, std::string file, std::vector<Problem>& problems);

  // False: the text is no JSON; root() is null then.
  bool complete() const { return complete_; }
  const nlohmann::json& root() const { return root_; }

  // Where the value at a JSON pointer was written: a member's key, or an element itself. A pointer to what was not
  // written gets the position of the nearest value around it.
  Place place(const std::string& pointer) const;
  // The keys of the object at a JSON pointer, in the order written; none where there is no object.
  std::vector<std::string> keys(const std::string& pointer) const;
  // The folder that the file is in, "" for the current one.
  std::string folder() const;

  // Offsets into the text, in the shape of the JSON value.
  struct Mark {
    std::uint32_t offset = 0;
    struct Children;
    std::unique_ptr<Children> children;  // null: none
  };
  struct Mark::Children {
    std::vector<Mark> elements;
    std::map<std::string, Mark> members;
  };

 private:
  // The mark of the nearest value around a pointer, and whether it is the pointer's own.
  std::pair<const Mark*, bool> mark_of(const std::string& pointer) const;
  Place place_at(std::size_t offset, const std::string& pointer) const;

  std::string text_, file_;
  nlohmann::json root_;
  Mark mark_;
  bool complete_ = false;
  std::vector<std::uint32_t> lines_;       // where each line starts
  std::vector<std::uint32_t> characters_;  // how many characters stand before each block of the text
};

// One step of a JSON pointer: "a/b" -> "/a~1b".
std::string pointer_to(const std::string& key);
std::string pointer_to(std::size_t index);
// The steps of a pointer, unescaped.
std::vector<std::string> pointer_steps(const std::string& pointer);

}  // namespace lanewise
