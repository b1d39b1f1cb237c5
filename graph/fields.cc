#include "graph/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/document.h"
#include "graph/registry.h"
#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};

// What a T is called in "must be …", and in lists "… of …".
template <class T>
struct Word;
template <>
struct Word<bool> {
  static constexpr const char *one = "true or false", *type = "true or false";
};
template <>
struct Word<std::int64_t> {
  static constexpr const char *one = "an integer", *type = "integer";
};
template <>
struct Word<std::uint64_t> {
  static constexpr const char *one = "an integer", *type = "integer";
};
template <>
struct Word<double> {
  static constexpr const char *one = "a number", *type = "number";
};
template <>
struct Word<std::string> {
  static constexpr const char *one = "text", *type = "text";
};
template <>
struct Word<Path> {
  static constexpr const char *one = "text, the name of a file", *type = "file";
};
template <>
struct Word<Json> {
  static constexpr const char *one = "anything", *type = "any";
};

template <class T>
std::string type_of(const T&) {
  return Word<T>::type;
}
template <class T>
std::string type_of(const std::optional<T>&) {
  return Word<T>::type;
}
template <class T>
std::string type_of(const std::vector<T>&) {
  return fmt::format("list of {}s", Word<T>::type);
}

template <class T>
Json value_of(const T& slot) {
  return slot;
}
template <class T>
Json value_of(const std::optional<T>& slot) {
  return slot ? Json(*slot) : Json();
}
Json value_of(const Path& slot) { return slot.text; }

constexpr const char* kNoNul = "without a NUL character";

// Reads one value strictly. Returns "" or what it must be.
std::string read(bool& slot, const Json& value) {
  if (!value.is_boolean()) return Word<bool>::one;
  slot = value.get<bool>();
  return "";
}
template <class T>
std::string read_integer(T& slot, const Json& value) {
  if (!value.is_number_integer()) return Word<T>::one;
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) return "at least 0";
  } else {
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMax)) {
      return fmt::format("at most {}", kMax);
    }
  }
  slot = value.get<T>();
  return "";
}
std::string read(std::int64_t& slot, const Json& value) { return read_integer(slot, value); }
std::string read(std::uint64_t& slot, const Json& value) { return read_integer(slot, value); }
std::string read(double& slot, const Json& value) {
  if (!value.is_number()) return Word<double>::one;
  slot = value.get<double>();
  return "";
}
std::string read(std::string& slot, const Json& value) {
  if (!value.is_string()) return Word<std::string>::one;
  if (value.get_ref<const std::string&>().find('\0') != std::string::npos) return kNoNul;
  slot = value.get<std::string>();
  return "";
}
std::string read(Path& slot, const Json& value) {
  std::string text;
  if (const std::string must = read(text, value); !must.empty()) return must == kNoNul ? must : Word<Path>::one;
  slot.text = std::move(text);
  return "";
}
std::string read(Json& slot, const Json& value) {
  slot = value;
  return "";
}

std::string whole_path(const std::string& folder, const std::string& path) {
  if (path.empty() || path.front() == '/' || folder.empty()) return path;
  return folder.back() == '/' ? folder + path : folder + "/" + path;
}

std::string bound_text(double bound) { return fmt::format("{}", bound); }

}  // namespace

std::string FieldInfo::bounds() const {
  if (!choices.empty()) return "one of " + fmt::format("{}", fmt::join(choices, ", "));
  const std::string from = low ? (low_open ? "above " : "at least ") + bound_text(*low) : "";
  const std::string to = high ? (high_open ? "below " : "at most ") + bound_text(*high) : "";
  if (low && high && !low_open && !high_open) return "between " + bound_text(*low) + " and " + bound_text(*high);
  return from + (low && high ? " and " : "") + to;
}

Field& Field::check(bool (*good)(double value, double bound), double bound) {
  if (!given_) return *this;
  const Json& written = fields_->source_->values->at(info_->name);
  const auto one = [&](auto number, const Json& as_written, const std::string& where) {
    if (good(static_cast<double>(number), bound)) return;
    fields_->problem_at(where, fmt::format("{}: \"{}\" must be {}, not {}", fields_->source_->owner, info_->name,
                                           info_->bounds(), shown(as_written)));
  };
  const std::string name = pointer_to(info_->name).substr(1);
  std::visit(
      [&](auto* slot) {
        using T = std::remove_pointer_t<decltype(slot)>;
        if constexpr (std::is_arithmetic_v<T>) {
          one(*slot, written, name);
        } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>> ||
                             std::is_same_v<T, std::optional<double>>) {
          one(slot->value(), written, name);
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>> || std::is_same_v<T, std::vector<double>>) {
          for (std::size_t i = 0; i < slot->size(); ++i) one((*slot)[i], written.at(i), name + pointer_to(i));
        }
      },
      slot_.pointer);
  return *this;
}

Field& Field::at_least(double low) {
  info_->low = low;
  return check([](double value, double bound) { return value >= bound; }, low);
}

Field& Field::above(double low) {
  info_->low = low;
  info_->low_open = true;
  return check([](double value, double bound) { return value > bound; }, low);
}

Field& Field::at_most(double high) {
  info_->high = high;
  return check([](double value, double bound) { return value <= bound; }, high);
}

Field& Field::below(double high) {
  info_->high = high;
  info_->high_open = true;
  return check([](double value, double bound) { return value < bound; }, high);
}

Field& Field::between(double low, double high) {
  info_->low = low;
  info_->high = high;
  check([](double value, double bound) { return value >= bound; }, low);
  return check([](double value, double bound) { return value <= bound; }, high);
}

Field& Field::one_of(std::vector<std::string> choices) {
  info_->choices = std::move(choices);
  if (!given_) return *this;
  const auto one = [&](const std::string& value, const std::string& where) {
    // A default outside the choices ("": left to others) may also be written down.
    if (std::find(info_->choices.begin(), info_->choices.end(), value) != info_->choices.end()) return;
    if (info_->fallback.is_string() && info_->fallback == value) return;
    fields_->problem_at(where, fmt::format("{}: \"{}\" must be {}, not {}{}", fields_->source_->owner, info_->name,
                                           info_->bounds(), in_quotes(value), did_you_mean(value, info_->choices)));
  };
  const std::string name = pointer_to(info_->name).substr(1);
  if (auto* text = std::get_if<std::string*>(&slot_.pointer)) one(**text, name);
  if (auto* text = std::get_if<std::optional<std::string>*>(&slot_.pointer)) one((*text)->value(), name);
  if (auto* list = std::get_if<std::vector<std::string>*>(&slot_.pointer)) {
    for (std::size_t i = 0; i < (*list)->size(); ++i) one((**list)[i], name + pointer_to(i));
  }
  return *this;
}

Field& Field::unit(const std::string& unit) {
  info_->unit = unit;
  return *this;
}

Field& Field::required() {
  info_->required = true;
  info_->fallback = nullptr;
  if (fields_->source_ && !fields_->source_->values->contains(info_->name)) {
    fields_->problem_at(
        "", fmt::format("{} needs the {} \"{}\"", fields_->source_->owner, fields_->source_->noun, info_->name));
  }
  return *this;
}

Fields::Fields(Source source, std::vector<Problem>& problems)
    : source_(std::move(source)),
      problems_(&problems),
      resolved_(nlohmann::ordered_json::object()),
      written_(nlohmann::ordered_json::object()) {}

Field Fields::add(const std::string& name, Slot slot, const std::string& help) {
  FieldInfo& info = infos_.emplace_back();
  info.name = name;
  info.help = help;
  std::visit(
      [&](auto* s) {
        using T = std::remove_pointer_t<decltype(s)>;
        info.type = type_of(*s);
        info.fallback = value_of(*s);
        info.optional = IsOptional<T>::value;
        if constexpr (std::is_same_v<T, std::uint64_t>) info.low = 0;
      },
      slot.pointer);
  if (!source_) return Field(*this, info, slot, /*given=*/false);

  const auto it = source_->values->find(name);
  bool given = it != source_->values->end() && !(info.optional && it->is_null());
  const std::string key = pointer_to(name).substr(1);
  const auto refuse = [&](const std::string& where, const std::string& what, const std::string& must,
                          const Json& value) {
    given = false;
    problem_at(where, must == kNoNul
                          ? fmt::format("{}: {} holds a NUL character", source_->owner, what)
                          : fmt::format("{}: {} must be {}, not {}", source_->owner, what, must, shown(value)));
  };
  const std::string self = fmt::format("\"{}\"", name);
  std::visit(
      [&](auto* s) {
        using T = std::remove_pointer_t<decltype(s)>;
        if constexpr (IsOptional<T>::value) {
          if (it != source_->values->end() && !given) *s = std::nullopt;  // null: absent, whatever the default
        }
        if (given) {
          if constexpr (IsOptional<T>::value) {
            typename T::value_type value{};
            const std::string must = read(value, *it);
            if (must.empty()) {
              *s = value;
            } else {
              refuse(key, self, must, *it);
            }
          } else if constexpr (IsList<T>::value) {
            using Element = typename T::value_type;
            if (!it->is_array()) {
              refuse(key, self, "a " + info.type, *it);
            } else {
              T list(it->size());
              for (std::size_t i = 0; i < it->size(); ++i) {
                Element element{};
                const std::string must = read(element, (*it)[i]);
                if (!must.empty())
                  refuse(key + pointer_to(i), fmt::format("element {} of {}", i, self), must, (*it)[i]);
                list[i] = std::move(element);
              }
              if (given) *s = std::move(list);
            }
          } else {
            const std::string must = read(*s, *it);
            if (!must.empty()) refuse(key, self, must, *it);
          }
        }
        written_[name] = value_of(*s);
        if constexpr (std::is_same_v<T, Path>) {
          if (!s->text.empty()) s->text = whole_path(source_->folder(key), s->text);
        }
        resolved_[name] = value_of(*s);
      },
      slot.pointer);
  return Field(*this, info, slot, given);
}

void Fields::group(const std::string& name, const std::string& help, const std::function<void(Fields&)>& fields) {
  static const Json kEmpty = Json::object();
  Fields inner;
  if (source_) {
    const auto it = source_->values->find(name);
    const std::string key = pointer_to(name).substr(1);
    const Json* values = it == source_->values->end() ? &kEmpty : &*it;
    if (!values->is_object()) {
      problem_at(key, fmt::format("{}: \"{}\" must be an object, not {}", source_->owner, name, shown(*values)));
      values = &kEmpty;
    }
    const auto below = [key](const std::string& relative) { return relative.empty() ? key : key + "/" + relative; };
    inner = Fields(
        {values, source_->owner + "." + name, [this, below](const std::string& k) { return source_->place(below(k)); },
         [this, below](const std::string& k) { return source_->folder(below(k)); }, source_->noun},
        *problems_);
  }
  fields(inner);
  if (source_) {
    inner.finish();
    resolved_[name] = inner.resolved();
    written_[name] = inner.written();
  }
  FieldInfo& info = infos_.emplace_back();
  info.name = name;
  info.type = "group";
  info.help = help;
  info.group = inner.infos();
}

void Fields::finish() {
  if (!source_) return;
  std::vector<std::string> names;
  for (const FieldInfo& info : infos_) names.push_back(info.name);
  for (const auto& [key, value] : source_->values->items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    std::string hint = did_you_mean(key, names);
    if (hint.empty()) hint = names.empty() ? "; it has none" : "; it has " + listed(names);
    problem_at(pointer_to(key).substr(1),
               fmt::format("{} has no {} {}{}", source_->owner, source_->noun, in_quotes(key), hint));
  }
}

void Fields::problem(const std::string& name, const std::string& rule) {
  if (source_) problem_at(name.empty() ? "" : pointer_to(name).substr(1), source_->owner + ": " + rule);
}

const FieldInfo* find_field(const std::vector<FieldInfo>& infos, const std::vector<std::string>& path,
                            std::vector<std::string>* names) {
  const std::vector<FieldInfo>* level = &infos;
  const FieldInfo* found = nullptr;
  for (const std::string& step : path) {
    const auto it =
        std::find_if(level->begin(), level->end(), [&](const FieldInfo& info) { return info.name == step; });
    if (it == level->end()) {
      for (const FieldInfo& info : *level) {
        if (names) names->push_back(info.name);
      }
      return nullptr;
    }
    found = &*it;
    level = &found->group;
  }
  return found;
}

std::vector<FieldInfo> flattened(const std::vector<FieldInfo>& infos) {
  std::vector<FieldInfo> all;
  for (const FieldInfo& info : infos) {
    if (info.group.empty()) all.push_back(info);
    for (FieldInfo& inner : flattened(info.group)) {
      inner.name = info.name + "." + inner.name;
      all.push_back(std::move(inner));
    }
  }
  return all;
}

std::vector<FieldInfo> describe(const std::function<void(Fields&)>& fields) {
  Fields description;
  if (fields) fields(description);
  return description.infos();
}

void Fields::problem_at(const std::string& relative, const std::string& rule) {
  problems_->push_back({source_->place(relative), rule});
}

}  // namespace lanewise
