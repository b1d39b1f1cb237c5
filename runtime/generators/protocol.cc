#include "runtime/generators/protocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <libdeflate.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "graph/text.h"

static_assert(std::endian::native == std::endian::little, "messages and frames are little-endian");

namespace lanewise {
namespace {

constexpr std::string_view kMessageMagic = "LWMS", kFrameMagic = "LWFR";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kMessageHeader = 16, kFrameHeader = 64, kFrameCrcAt = 60;
constexpr std::size_t kDeepest = 8, kMostLengths = 8;
constexpr std::uint32_t kStart = 1, kLast = 2, kTimed = 4;

struct MessageShape {
  std::string_view name;
  std::optional<std::size_t> body;  // bytes; nullopt: any
  bool from_child;
};
constexpr MessageShape kMessages[] = {
    {"", 0, false},       {"hello", {}, true},    {"welcome", {}, false},    {"credit", 8, false},
    {"samples", 8, true}, {"reset", 24, false},   {"reset_done", 8, true},   {"save", 0, false},
    {"state", 24, true},  {"restore", 48, false}, {"restore_done", 8, true}, {"end", 8, true},
    {"error", {}, true},  {"bye", 0, false},
};

template <class T>
T load(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[noreturn]] void refuse(std::string_view word, const std::string& text) { throw ProtocolError(word, text); }

// Brackets inside of strings count, too: a name with eight of them is nobody's.
bool is_deep(std::string_view text) {
  std::size_t depth = 0;
  for (const char c : text) {
    if ((c == '[' || c == '{') && ++depth > kDeepest) return true;
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return false;
}

const nlohmann::json& member(const nlohmann::json& object, const char* key, nlohmann::json::value_t type,
                             const char* must) {
  const auto it = object.find(key);
  if (it == object.end()) refuse("hello", fmt::format("{} is missing", key));
  if (it->type() != type) refuse("hello", fmt::format("{} is {}, not {}", key, shown(*it), must));
  return *it;
}

GeneratorField field_of(const nlohmann::json& hello, const char* key, std::size_t most) {
  using Type = nlohmann::json::value_t;
  const nlohmann::json& object = member(hello, key, Type::object, "an object");
  GeneratorField field;
  field.dtype = member(object, "dtype", Type::string, "a text");
  field.bytes = field.dtype == "float32" ? 4 : field.dtype == "float64" || field.dtype == "int64" ? 8 : 0;
  if (field.bytes == 0)
    refuse("dtype", fmt::format("{} is {}; it can be float32, float64 or int64", key, in_quotes(field.dtype)));
  const nlohmann::json& shape = member(object, "shape", Type::array, "a list");
  for (const nlohmann::json& length : shape) {
    if (!length.is_number_integer()) refuse("hello", fmt::format("the shape of {} is {}", key, shape.dump()));
    const bool fits = length.is_number_unsigned() && length >= 1 && length <= std::int64_t{1} << 60;
    if (!fits || shape.size() > kMostLengths)
      refuse("shape", fmt::format("{} is {}; it has 1 to {} lengths of at least 1", key, shape.dump(), kMostLengths));
    field.shape.push_back(length);
    if (__builtin_mul_overflow(field.bytes, length.get<std::size_t>(), &field.bytes) || field.bytes > most)
      refuse("shape",
             fmt::format("{} of shape {} has more than the {} bytes that a sample may have", key, shape.dump(), most));
  }
  if (field.shape.empty()) refuse("shape", fmt::format("{} is []; it has 1 to {} lengths", key, kMostLengths));
  return field;
}

}  // namespace

ProtocolError::ProtocolError(std::string_view word, const std::string& text)
    : Error(Exit::kGenerator, fmt::format("{}: {}", word, text)) {}

std::string GeneratorField::text() const { return fmt::format("{}[{}]", dtype, fmt::join(shape, ",")); }

std::size_t GeneratorHello::slot_size() const { return (kFrameHeader + payload() + 63) / 64 * 64; }

GeneratorHello parse_hello(std::string_view body, std::size_t most_sample) {
  if (find_bad_utf8(body) != std::string_view::npos) refuse("size", "hello is not UTF-8");
  if (is_deep(body)) refuse("hello", fmt::format("it is nested deeper than {}", kDeepest));
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("hello", "it is not a JSON object");
  using Type = nlohmann::json::value_t;
  GeneratorHello hello;
  hello.name = member(json, "name", Type::string, "a text");
  if (json.contains("helper")) hello.helper = member(json, "helper", Type::string, "a text");
  hello.x = field_of(json, "x", most_sample);
  hello.y = field_of(json, "y", most_sample);
  hello.state = member(json, "state", Type::boolean, "true or false");
  hello.reset = member(json, "reset", Type::boolean, "true or false");
  if (hello.payload() > most_sample)
    refuse("shape", fmt::format("a sample {} has {} bytes, and at most {} are allowed", hello.form(), hello.payload(),
                                most_sample));
  const std::string form = hello.form();
  hello.form_crc = crc32_of(std::as_bytes(std::span(form)));
  return hello;
}

std::string GeneratorWelcome::body() const {
  const nlohmann::ordered_json json = {{"seed", seed},
                                       {"run", run},
                                       {"stream", stream},
                                       {"mode", evaluating ? "evaluate" : "train"},
                                       {"slots", slots},
                                       {"slot_size", slot_size},
                                       {"state_size", state_size}};
  return json.dump();
}

MessageOut::MessageOut(Message type) {
  bytes_ = kMessageMagic;
  const std::uint16_t header[] = {kVersion, static_cast<std::uint16_t>(type), 0, 0, 0, 0};
  bytes_.append(reinterpret_cast<const char*>(header), sizeof header);
}

MessageOut& MessageOut::u32(std::uint32_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

MessageOut& MessageOut::u64(std::uint64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

MessageOut& MessageOut::text(std::string_view value) {
  bytes_ += value;
  return *this;
}

std::string_view MessageOut::bytes() {
  const auto size = static_cast<std::uint32_t>(bytes_.size());
  std::memcpy(bytes_.data() + 8, &size, sizeof size);
  return bytes_;
}

std::uint32_t MessageIn::u32(std::size_t at) const { return load<std::uint32_t>(body.data() + at); }
std::uint64_t MessageIn::u64(std::size_t at) const { return load<std::uint64_t>(body.data() + at); }

MessageIn parse_message(std::span<const char> buffer, std::size_t size) {
  if (size < kMessageHeader) refuse("size", fmt::format("a message of {} bytes is shorter than its header", size));
  const std::string_view bytes(buffer.data(), std::min(size, buffer.size()));
  if (!bytes.starts_with(kMessageMagic))
    refuse("magic", fmt::format("a message begins with {}, not {}", in_quotes(bytes.substr(0, 4)), kMessageMagic));
  if (const auto version = load<std::uint16_t>(&bytes[4]); version != kVersion)
    refuse("version",
           fmt::format("the generator speaks version {} of the protocol, and lanewise version {}", version, kVersion));
  if (size > kMostFromChild)
    refuse("size", fmt::format("a message of {} bytes is longer than the {} allowed", size, kMostFromChild));
  if (const auto told = load<std::uint32_t>(&bytes[8]); told != size)
    refuse("size", fmt::format("a message of {} bytes says that it has {}", size, told));
  const auto type = load<std::uint16_t>(&bytes[6]);
  if (type >= std::size(kMessages) || !kMessages[type].from_child)
    refuse("type", fmt::format("a generator sends no message of type {}", type));
  const MessageShape& shape = kMessages[type];
  const std::string_view body = bytes.substr(kMessageHeader);
  if (shape.body && body.size() != *shape.body)
    refuse("size", fmt::format("{} has a body of {} bytes, not {}", shape.name, body.size(), *shape.body));
  return {static_cast<Message>(type), body};
}

void read_frame(const std::byte* slot, const GeneratorHello& hello, const FrameExpected& expected,
                const FrameMemory& memory, GeneratorFrame& frame) {
  std::array<std::byte, kFrameHeader> header;  // what is checked is a copy: the slot may change
  std::memcpy(header.data(), slot, header.size());
  const std::string_view magic(reinterpret_cast<const char*>(header.data()), kFrameMagic.size());
  const auto here = [&] { return fmt::format("frame {}", expected.sequence); };
  if (magic != kFrameMagic)
    refuse("magic", fmt::format("{} begins with {}, not {}", here(), in_quotes(magic), kFrameMagic));
  const auto length = load<std::uint64_t>(&header[40]);
  if (length != hello.payload())
    refuse("length", fmt::format("{} says {} bytes, and {} has {}", here(), length, hello.form(), hello.payload()));
  const std::byte* const payload = slot + kFrameHeader;
  std::array<std::byte, 8> between;
  const std::size_t padding = hello.y_at() - hello.x.bytes;
  std::memcpy(memory.x, payload, hello.x.bytes);
  std::memcpy(between.data(), payload + hello.x.bytes, padding);
  std::memcpy(memory.y, payload + hello.y_at(), hello.y.bytes);
  std::uint32_t crc = crc32_of(std::span(header).first(kFrameCrcAt));
  crc = crc32_of({memory.x, hello.x.bytes}, crc);
  crc = crc32_of(std::span(between).first(padding), crc);
  crc = crc32_of({memory.y, hello.y.bytes}, crc);
  if (crc != load<std::uint32_t>(&header[kFrameCrcAt])) refuse("crc", fmt::format("of {}", here()));
  if (expected.after_last) refuse("sequence", fmt::format("{} comes after the last one", here()));
  if (const auto told = load<std::uint64_t>(&header[8]); told != expected.sequence)
    refuse("sequence", fmt::format("{} says that it is {}", here(), told));
  if (const auto told = load<std::uint64_t>(&header[16]); told != expected.run)
    refuse("run", fmt::format("{} is of run {}, and this is run {}", here(), told, expected.run));
  if (load<std::uint32_t>(&header[48]) != hello.form_crc)
    refuse("form", fmt::format("{} is not {}, as hello promised", here(), hello.form()));
  const auto flags = load<std::uint32_t>(&header[4]);
  if ((flags & ~(kStart | kLast | kTimed)) != 0)
    refuse("flags", fmt::format("{} has unknown flags {:#x}", here(), flags));
  frame.weight = load<double>(&header[32]);
  if (!(frame.weight >= 0 && frame.weight <= 1))
    refuse("weight", fmt::format("{} has weight {}, not one from 0 to 1", here(), frame.weight));
  frame.start = (flags & kStart) != 0;
  frame.last = (flags & kLast) != 0;
  frame.time = (flags & kTimed) != 0 ? std::optional(load<std::int64_t>(&header[24])) : std::nullopt;
}

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  return ::libdeflate_crc32(before, bytes.data(), bytes.size());
}

}  // namespace lanewise
