// Fields tells a set of parameters once: from one function follow parsing, defaults, error messages, help and the
// schema.
//
//   struct Params {
//     std::int64_t features = 16;
//     void fields(Fields& f) {
//       f.add("features", features, "values per sample").at_least(1);
//     }
//   };
//
// Read strictly: 3.7 is no integer, true is no number, unknown keys are problems with the nearest right name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/error.h"

namespace lanewise {

// A file: relative ones are relative to the pipeline file, or to the current directory when given on the command line.
struct Path {
  std::string text;
};

// Where a parameter is read into; what may be absent without a default is an optional, for which null means absent. A
// json takes any value as it is; who reads it checks it.
struct Slot {
  using Pointer =
      std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, Path*, std::vector<std::int64_t>*,
                   std::vector<double>*, std::vector<std::string>*, std::optional<std::int64_t>*,
                   std::optional<double>*, std::optional<std::string>*, nlohmann::json*>;
  template <class T, class = std::enable_if_t<std::is_constructible_v<Pointer, T*>>>
  Slot(T& variable) : pointer(&variable) {}  // NOLINT: meant to convert
  template <class T>
  Slot(T* variable) : pointer(variable) {}  // NOLINT

  Pointer pointer;
};

// What `lanewise nodes TYPE`, the schema and the docs say of one parameter.
struct FieldInfo {
  // type: "integer", "number", "true or false", "text", "file", "list of …", "any", "group"
  std::string name, type, help, unit;
  nlohmann::json fallback;  // the default; null: none
  bool required = false;
  bool optional = false;            // null is allowed and means absent
  std::optional<double> low, high;  // bounds; a list has them for each element
  bool low_open = false, high_open = false;
  std::vector<std::string> choices;
  std::vector<FieldInfo> group;  // a nested object's fields
  std::string bounds() const;    // "at least 1", "between -1 and 1", "one of sgd, adam", or ""
};

class Fields;

// One parameter being told. The checks record a problem where the value read breaks them.
class Field {
 public:
  Field& at_least(double low);
  Field& above(double low);  // greater than
  Field& at_most(double high);
  Field& below(double high);                // less than
  Field& between(double low, double high);  // both included
  Field& one_of(std::vector<std::string> choices);
  Field& unit(const std::string& unit);
  Field& required();

 private:
  friend class Fields;
  Field(Fields& fields, FieldInfo& info, Slot slot, bool given)
      : fields_(&fields), info_(&info), slot_(slot), given_(given) {}
  Fields* fields_;
  FieldInfo* info_;
  Slot slot_;
  bool given_;  // a value was read, so that it can be checked
  // Records a problem for each number read, or each of a list, that is not `good`.
  Field& check(bool (*good)(double value, double bound), double bound);
};

class Fields {
 public:
  // Only describes: nothing is read. infos() then lists the fields.
  Fields() = default;

  // Reads `values`, an object. `place` gives where the value of a key stands, and for "" the object; keys inside a
  // group and elements of a list come as "checkpoint/every" and "hidden/2", escaped like steps of a JSON pointer.
  // `owner` begins messages ("ar1"), `noun` is what they call a key. `folder(key)` gives the folder that relative paths
  // are relative to.
  struct Source {
    const nlohmann::json* values = nullptr;
    std::string owner;
    std::function<Place(const std::string& key)> place;
    std::function<std::string(const std::string& key)> folder;
    std::string noun = "parameter";
  };
  Fields(Source source, std::vector<Problem>& problems);

  Field add(const std::string& name, Slot slot, const std::string& help);
  // A nested object, `name`: {…}.
  void group(const std::string& name, const std::string& help, const std::function<void(Fields&)>& fields);

  // After all add(): records a problem for every key of the object that no add() named.
  void finish();

  // A rule that no single field can tell; recorded at the field's place.
  void problem(const std::string& name, const std::string& rule);

  const std::vector<FieldInfo>& infos() const { return infos_; }
  // Every field with the value in force, in the order told: `resolved` with paths made whole, `written` as the user
  // wrote.
  const nlohmann::ordered_json& resolved() const { return resolved_; }
  const nlohmann::ordered_json& written() const { return written_; }

 private:
  friend class Field;
  void problem_at(const std::string& relative, const std::string& rule);

  std::optional<Source> source_;
  std::vector<Problem>* problems_ = nullptr;
  std::vector<FieldInfo> infos_;
  nlohmann::ordered_json resolved_, written_;
};

// What a fields function tells.
std::vector<FieldInfo> describe(const std::function<void(Fields&)>& fields);
// A field by its path through groups; null: there is none, and `names` are those of the level that lacks it.
const FieldInfo* find_field(const std::vector<FieldInfo>& infos, const std::vector<std::string>& path,
                            std::vector<std::string>* names = nullptr);
// Every field, those of a group in its place as "group.name".
std::vector<FieldInfo> flattened(const std::vector<FieldInfo>& infos);

// Reads parameters that were checked before (a plan's).
template <class P>
P read_checked(const nlohmann::json& values) {
  P params;
  std::vector<Problem> problems;
  Fields fields(
      {&values, "", [](const std::string&) { return Place{}; }, [](const std::string&) { return std::string(); }},
      problems);
  params.fields(fields);
  if (!problems.empty()) throw Error(Exit::kInternal, "a plan's parameters do not read back: " + problems.front().rule);
  return params;
}

}  // namespace lanewise
