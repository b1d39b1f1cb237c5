// Named places where a test can have the process killed, as the system or a user could at any time.
#pragma once

#include <string_view>

namespace lanewise {

// Ends the process by SIGKILL where the environment says LANEWISE_KILL_AT="NAME:N" and this is the N-th passing of that
// name, counted from 1. From any thread. Throws Error(kCommandLine) when the variable is not of that form.
void kill_point(std::string_view name);

}  // namespace lanewise
