#include "graph/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/text.h"

namespace lanewise {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBlock = 1024;

// Builds the value from the parser's events and, in step with them, walks the text to find where each token starts.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& text, Json& root, Document::Mark& mark) : text_(text), root_(root), root_mark_(mark) {
    if (text.starts_with("\xef\xbb\xbf")) cursor_ = 3;
  }

  // One thing wrong, at an offset of the text.
  struct Fault {
    std::size_t offset;
    std::string rule;
  };
  std::vector<Fault> faults;
  std::vector<Fault> duplicates;

  bool null() override { return add(nullptr, skip_word()); }
  bool boolean(bool value) override { return add(value, skip_word()); }
  bool number_integer(number_integer_t value) override { return add(value, skip_word()); }
  bool number_unsigned(number_unsigned_t value) override { return add(value, skip_word()); }
  bool number_float(number_float_t value, const string_t&) override { return add(value, skip_word()); }
  bool string(string_t& value) override { return add(std::move(value), skip_string()); }
  bool binary(binary_t&) override { return false; }  // no JSON text has one

  // After the last value: what is left of the text.
  void finish() { skip_space(); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    key_offset_ = skip_string();
    key_ = std::move(value);
    if (levels_.back().value->contains(key_)) {
      duplicates.push_back({key_offset_, fmt::format("the key {} is given twice", in_quotes(key_))});
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    std::string rule = error.what();
    const std::size_t end = std::min(position == 0 ? 0 : position - 1, text_.size());
    const auto says = [&](const char* text) { return rule.find(text) != std::string::npos; };
    std::size_t length = 1;  // of the token that came; the parser stands on its last character
    if (says("unexpected string") || says("unexpected number")) length = token.size();
    if (says("unexpected true") || says("unexpected null")) length = 4;
    if (says("unexpected false")) length = 5;
    std::size_t offset = end + 1 - std::min(length, end + 1);
    if (says("unexpected end of input") || says("empty input")) offset = text_.size();
    faults.push_back({offset, "this is not JSON: " + plain(std::move(rule))});
    return false;
  }

 private:
  struct Level {
    Json* value;
    Document::Mark* mark;
  };

  // The library's message without its number, position and the text last read.
  static std::string plain(std::string rule) {
    if (rule.find("empty input") != std::string::npos) return "there is nothing in it";
    if (const auto at = rule.find("while parsing"); at != std::string::npos) {
      rule.erase(0, at);
    } else if (const auto bracket = rule.find("] "); bracket != std::string::npos) {
      rule.erase(0, bracket + 2);
    }
    if (const auto read = rule.find("; last read: '"); read != std::string::npos) {
      const auto expected = rule.rfind("'; expected ");
      rule.erase(read, expected == std::string::npos || expected < read ? std::string::npos : expected + 1 - read);
    }
    if (const auto dash = rule.find(" - "); dash != std::string::npos) rule.replace(dash, 3, ": ");
    if (rule.find("parsing object:") != std::string::npos || rule.find("parsing array:") != std::string::npos) {
      if (const auto at = rule.find("expected '"); at != std::string::npos) rule.insert(at + 9, "',' or ");
    }
    return escaped(rule);
  }

  // Moves the cursor to the next token's first character.
  void skip_space() {
    while (cursor_ < text_.size()) {
      const char c = text_[cursor_];
      if (c == '/' && cursor_ + 1 < text_.size()) {
        const bool line = text_[cursor_ + 1] == '/';
        if (!line) faults.push_back({cursor_, "a comment begins with // and ends with its line; /* */ is not read"});
        const std::size_t end = line ? text_.find('\n', cursor_) : text_.find("*/", cursor_ + 2);
        cursor_ = end == std::string::npos ? text_.size() : end + (line ? 1 : 2);
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':') {
        ++cursor_;
      } else {
        return;
      }
    }
  }
  std::size_t skip_word() {
    skip_space();
    const std::size_t start = cursor_;
    cursor_ = std::min(text_.find_first_not_of("+-.0123456789abcdefghijklmnopqrstuvwxyzE", start), text_.size());
    return start;
  }
  std::size_t skip_string() {
    skip_space();
    const std::size_t start = cursor_++;
    while (text_[cursor_] != '"') cursor_ += text_[cursor_] == '\\' ? 2 : 1;
    ++cursor_;
    return start;
  }
  std::size_t skip_bracket() {
    skip_space();
    return cursor_++;
  }

  // Puts a value where the parser is, and says where that is.
  Level put(Json value, std::size_t offset) {
    if (levels_.empty()) {
      root_ = std::move(value);
      root_mark_.offset = static_cast<std::uint32_t>(offset);
      return {&root_, &root_mark_};
    }
    const Level& parent = levels_.back();
    Document::Mark::Children& children = *parent.mark->children;
    if (parent.value->is_array()) {
      parent.value->push_back(std::move(value));
      children.elements.emplace_back().offset = static_cast<std::uint32_t>(offset);
      return {&parent.value->back(), &children.elements.back()};
    }
    Json& slot = (*parent.value)[key_];
    slot = std::move(value);
    Document::Mark& mark = children.members[key_];
    mark = Document::Mark{static_cast<std::uint32_t>(key_offset_), nullptr};
    return {&slot, &mark};
  }
  bool add(Json value, std::size_t offset) {
    put(std::move(value), offset);
    return true;
  }
  bool open(Json value) {
    const std::size_t offset = skip_bracket();
    if (levels_.size() == Document::kMaxDepth) {
      faults.push_back({offset, fmt::format("nested deeper than {}", Document::kMaxDepth)});
      return false;
    }
    const Level level = put(std::move(value), offset);
    level.mark->children = std::make_unique<Document::Mark::Children>();
    levels_.push_back(level);
    return true;
  }
  bool close() {
    skip_bracket();
    levels_.pop_back();
    return true;
  }

  const std::string& text_;
  Json& root_;
  Document::Mark& root_mark_;
  std::vector<Level> levels_;
  std::size_t cursor_ = 0, key_offset_ = 0;
  std::string key_;
};

}  // namespace

Document::Document(std::string text, std::string file, std::vector<Problem>& problems)
    : text_(std::move(text)), file_(std::move(file)) {
  if (text_.size() > kMaxBytes) {
    problems.push_back(
        {{file_, ""}, fmt::format("is larger than {} MiB, the most a pipeline file may be", kMaxBytes >> 20)});
    return;
  }
  lines_.push_back(0);
  std::uint32_t characters = 0;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    if (i % kBlock == 0) characters_.push_back(characters);
    if ((static_cast<unsigned char>(text_[i]) & 0xc0) != 0x80) ++characters;
    if (text_[i] == '\n') lines_.push_back(static_cast<std::uint32_t>(i) + 1);
  }
  if (const std::size_t bad = std::min(find_bad_utf8(text_), text_.find('\0')); bad != std::string::npos) {
    problems.push_back({place_at(bad, ""), text_[bad] == '\0' ? "a zero byte; a pipeline file is text"
                                                              : "this byte is not UTF-8; save the file as UTF-8"});
    return;
  }
  Builder builder(text_, root_, mark_);
  complete_ = Json::sax_parse(text_, &builder, nlohmann::detail::input_format_t::json, /*strict=*/true,
                              /*ignore_comments=*/true);
  if (complete_) builder.finish();
  complete_ = complete_ && builder.faults.empty();
  for (const auto& fault : builder.faults) problems.push_back({place_at(fault.offset, ""), fault.rule});
  if (!complete_) {
    root_ = nullptr;
    mark_ = Mark{};
  }
  for (const auto& fault : builder.duplicates) problems.push_back({place_at(fault.offset, ""), fault.rule});
}

Place Document::place_at(std::size_t offset, const std::string& pointer) const {
  const auto line = std::upper_bound(lines_.begin(), lines_.end(), offset) - 1;
  const auto characters_before = [&](std::size_t end) -> std::size_t {
    const std::size_t block = std::min(end / kBlock, characters_.empty() ? 0 : characters_.size() - 1);
    if (characters_.empty()) return 0;
    return characters_[block] + width(std::string_view(text_).substr(block * kBlock, end - block * kBlock));
  };
  const std::size_t column = characters_before(offset) - characters_before(*line) + 1;
  return {fmt::format("{}:{}:{}", file_, line - lines_.begin() + 1, column), pointer};
}

std::pair<const Document::Mark*, bool> Document::mark_of(const std::string& pointer) const {
  const Mark* mark = &mark_;
  for (const std::string& step : pointer_steps(pointer)) {
    if (!mark->children) return {mark, false};
    const auto& members = mark->children->members;
    const auto& elements = mark->children->elements;
    if (const auto it = members.find(step); it != members.end()) {
      mark = &it->second;
    } else if (!elements.empty() && !step.empty() && step.size() < 10 &&
               step.find_first_not_of("0123456789") == std::string::npos && std::stoul(step) < elements.size()) {
      mark = &elements[std::stoul(step)];
    } else {
      return {mark, false};
    }
  }
  return {mark, true};
}

Place Document::place(const std::string& pointer) const { return place_at(mark_of(pointer).first->offset, pointer); }

std::vector<std::string> Document::keys(const std::string& pointer) const {
  const auto [mark, found] = mark_of(pointer);
  std::vector<std::pair<std::uint32_t, std::string>> order;
  if (found && mark->children) {
    for (const auto& [key, member] : mark->children->members) order.emplace_back(member.offset, key);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> result;
  for (auto& [offset, key] : order) result.push_back(std::move(key));
  return result;
}

std::string Document::folder() const {
  const auto slash = file_.rfind('/');
  return slash == std::string::npos ? "" : slash == 0 ? "/" : file_.substr(0, slash);
}

std::string pointer_to(const std::string& key) {
  std::string step = "/";
  for (const char c : key) {
    if (c == '~') {
      step += "~0";
    } else if (c == '/') {
      step += "~1";
    } else {
      step += c;
    }
  }
  return step;
}

std::string pointer_to(std::size_t index) { return fmt::format("/{}", index); }

std::vector<std::string> pointer_steps(const std::string& pointer) {
  std::vector<std::string> steps;
  for (std::size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      steps.emplace_back();
    } else if (pointer[i] == '~' && i + 1 < pointer.size()) {
      steps.back() += pointer[++i] == '1' ? '/' : '~';
    } else {
      steps.back() += pointer[i];
    }
  }
  return steps;
}

}  // namespace lanewise
