// The text of the Error that a call throws, with its exit code in front: "3: mse takes …"; "" when it throws none.
#pragma once

#include <string>

#include "graph/error.h"

namespace lanewise {

template <class F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.exit())) + ": " + error.what();
  }
  return "";
}

}  // namespace lanewise
