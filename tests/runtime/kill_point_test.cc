#include "runtime/kill_point.h"

#include <csignal>

#include "tests/check.h"
#include "tests/files.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

// How a process ends that passes "a", "b" and "a" again under this wish.
int end_under(const char* wish) {
  return end_of(start_process([&] {
    ::setenv("LANEWISE_KILL_AT", wish, 1);
    kill_point("a");
    kill_point("b");
    kill_point("a");
  }));
}

}  // namespace

TEST_CASE("kill point: kills at the wished passing of the wished name, else nothing happens") {
  kill_point("a");
  CHECK(end_under("a:1") == 128 + SIGKILL);
  CHECK(end_under("a:2") == 128 + SIGKILL);
  CHECK(end_under("b:1") == 128 + SIGKILL);
  CHECK(end_under("a:3") == 0);
  CHECK(end_under("b:2") == 0);
  CHECK(end_under("c:1") == 0);
}

TEST_CASE("kill point: a wish of another form is refused") {
  for (const char* wish : {"", "a", "a:", "a:0", "a:-1", "a:1x", "1"}) {
    CAPTURE(wish);
    CHECK(end_under(wish) == 1);
  }
}
