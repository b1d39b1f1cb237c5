// The environment's variables, as texts and whole numbers.
#pragma once

#include <string>

namespace lanewise {

// "" where there is no such variable.
std::string variable(const char* name);

// A variable that is a whole number from `least` to `most`. Throws Error(kCommandLine) with its name, its value and
// `rule`, what it has to be; "": a number within these bounds.
int number_variable(const char* name, int least, int most, const std::string& rule = "");

}  // namespace lanewise
