// What LibTorch's exceptions say.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace lanewise {

// Without the stack that LibTorch adds to it.
inline std::string what_without_stack(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

// What to do when a GPU is full.
inline constexpr const char* kNeedsLess = "a smaller model, fewer lanes on this GPU or shorter windows need less";

}  // namespace lanewise
