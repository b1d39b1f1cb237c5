// The parent's side of the generator protocol (docs/generator-protocol.md): messages and frames as bytes, and the
// checks of all that a child sends. What is wrong is a ProtocolError that begins with the document's word for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/error.h"
#include "graph/signature.h"

namespace lanewise {

class ProtocolError : public Error {
 public:
  ProtocolError(std::string_view word, const std::string& text);
};

enum class Message : std::uint16_t {
  kHello = 1,
  kWelcome,
  kCredit,
  kSamples,
  kReset,
  kResetDone,
  kSave,
  kState,
  kRestore,
  kRestoreDone,
  kEnd,
  kError,
  kBye,
};

// x or y of a sample as the generator gives it.
struct GeneratorField {
  std::string dtype;  // float32, float64, int64
  Shape shape;
  std::size_t bytes = 0;
  std::string text() const;  // "float32[8]"
};

struct GeneratorHello {
  std::string name, helper;
  GeneratorField x, y;
  bool state = false, reset = false;
  std::uint32_t form_crc = 0;  // of form()

  std::size_t y_at() const { return (x.bytes + 7) / 8 * 8; }
  std::size_t payload() const { return y_at() + y.bytes; }
  std::size_t slot_size() const;
  std::string form() const { return x.text() + " " + y.text(); }
};

// Of a hello's body. `most_sample`: bytes that a payload may have.
GeneratorHello parse_hello(std::string_view body, std::size_t most_sample);

struct GeneratorWelcome {
  std::uint64_t seed = 0, run = 0;
  std::string stream;
  bool evaluating = false;
  std::size_t slots = 0, slot_size = 0, state_size = 0;

  std::size_t memory_size() const { return slots * slot_size + state_size; }
  std::string body() const;
};

// A message to the child.
class MessageOut {
 public:
  explicit MessageOut(Message type);
  MessageOut& u32(std::uint32_t value);
  MessageOut& u64(std::uint64_t value);
  MessageOut& text(std::string_view value);
  std::string_view bytes();

 private:
  std::string bytes_;
};

// A message of the child, in memory of the caller's.
struct MessageIn {
  Message type;
  std::string_view body;
  std::uint32_t u32(std::size_t at) const;
  std::uint64_t u64(std::size_t at) const;
};
// Checks a packet of `size` bytes, of which `buffer` holds as many as it has.
MessageIn parse_message(std::span<const char> buffer, std::size_t size);
constexpr std::size_t kMostFromChild = 65536;

// A frame but for its values.
struct GeneratorFrame {
  bool start = false, last = false;
  std::optional<std::int64_t> time;
  double weight = 1;
};

// Where a frame's values go: as many bytes as x and y of a hello have.
struct FrameMemory {
  std::byte* x = nullptr;
  std::byte* y = nullptr;
};

struct FrameExpected {
  std::uint64_t sequence = 0, run = 0;
  bool after_last = false;
};
// Copies the frame out of the slot, and checks the copy.
void read_frame(const std::byte* slot, const GeneratorHello& hello, const FrameExpected& expected,
                const FrameMemory& memory, GeneratorFrame& frame);

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace lanewise
