// What the command prints: standard output with every write checked, standard error, and the small table that lists are
// printed as. The only place where bytes leave the command for a person's eyes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lanewise {

// Standard output. A closed one, or a full disk behind it, is an error and not a silent loss.
class Output {
 public:
  // Throws Error(kCommandLine) when not all of it could be written. Control characters are made visible.
  void write(const std::string& text);
  // The same without an error: for the last words of a command that has failed already.
  void try_write(const std::string& text) noexcept;
};

// What plugins, modules and libraries print goes to standard error from now on, so that standard output holds what the
// command writes alone. Before any thread is started; the standard descriptors are open.
void keep_output_apart();

// To standard error, where there is nothing to be done when it fails. Control characters are made visible.
void write_error(const std::string& text) noexcept;
// The same with a newline behind it: what notes for the user are told by.
void say_line(const std::string& line) noexcept;
// The bytes as they are, for what steers a terminal on standard error. Nothing is to be done when it fails.
void write_terminal(const std::string& text) noexcept;
bool error_is_terminal();

// Replaces what is not printable (graph/text.h) by \xNN, newlines excepted, and bytes that are no UTF-8 likewise: names
// come from files, and a terminal would obey them.
std::string visible(const std::string& text);

// JSON for people and programs: indented, in the order built; what is not printable is escaped.
std::string to_text(const nlohmann::ordered_json& json);

// 1234567 as "1,234,567".
std::string grouped(std::uint64_t number);
// 4 significant digits, never in scientific form between 1e-4 and 1e7.
std::string short_number(double number);

// Rows in aligned columns, two spaces apart, each line beginning with `indent`. No column is padded at a line's end.
std::string columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent);

}  // namespace lanewise
