// The environment's variables, as texts and whole numbers.
#pragma once

#include <optional>
#include <string>

namespace lanewise {

// "" where there is no such variable.
std::string variable(const char* name);

// A variable that is a whole number from `least` to `most`. Throws Error(kCommandLine) with its name, its value and
// `rule`, what it has to be; "": a number within these bounds.
int number_variable(const char* name, int least, int most, const std::string& rule = "");

// Whether the variable is this word; false where there is none. Throws Error(kCommandLine) where it is another one.
bool word_variable(const char* name, const std::string& word);

// What a variable's text is not: throws Error(kCommandLine) with its name and value.
[[noreturn]] void refuse_variable(const char* name, const std::string& rule);

// The whole number from `least` to `most` that a text is; none: it is anything else.
std::optional<int> whole_number(const std::string& text, int least, int most);

}  // namespace lanewise
