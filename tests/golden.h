// Golden files: whole texts that a test compares with tests/NAME. LANEWISE_RENEW_GOLDEN=1 in the environment rewrites
// them.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lanewise {

// Tests run in the project's root. A golden file that is missing is a failure.
inline void check_golden(const std::string& name, const std::string& text) {
  const std::string path = "tests/" + name;
  if (std::getenv("LANEWISE_RENEW_GOLDEN") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    REQUIRE_MESSAGE(out.good(), "cannot write " << path);
    return;
  }
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in.is_open(), path << " is missing; tools/renew-golden writes it");
  std::ostringstream expected;
  expected << in.rdbuf();
  CHECK_MESSAGE(text == expected.str(), path << " differs from what came:\n"
                                             << text << "\n--- expected:\n"
                                             << expected.str());
}

}  // namespace lanewise
