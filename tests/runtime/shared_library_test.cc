#include "runtime/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

TEST_CASE("shared library: one that is cut off anywhere is refused, and the whole one opens") {
  const char* const whole = std::getenv("FAKE_NCCL");
  REQUIRE_MESSAGE(whole != nullptr, "FAKE_NCCL must name the fake library; ctest sets it");
  const std::string bytes = read_text(whole);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/libcut.so";
  const auto opened = [&](const std::string& file) {
    return error_of([&] { ::dlclose(open_library(file, RTLD_NOW | RTLD_LOCAL)); });
  };
  for (std::size_t length = 64; length < bytes.size(); length += bytes.size() / 50) {
    write_text(path, std::string_view(bytes).substr(0, length));
    CAPTURE(length);
    CHECK(opened(path) == "9: " + path +
                              " does not load (its end is missing, as after a copy that was broken off; put it there "
                              "again)");
  }
  write_text(path, std::string_view(bytes).substr(0, bytes.size() - 1));
  CHECK(opened(path).find("its end is missing") != std::string::npos);
  for (const std::string& text : {std::string(), bytes.substr(0, 10), std::string(1000, 'x')}) {
    write_text(path, text);
    CHECK(opened(path).starts_with("9: " + path + " does not load ("));
  }
  write_text(path, bytes);
  CHECK(opened(path) == "");
  CHECK(opened("libm.so.6") == "");
  CHECK(opened("libnowhere.so").starts_with("9: libnowhere.so does not load ("));
}
