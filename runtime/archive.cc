#include "runtime/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "graph/error.h"
#include "graph/sha256.h"
#include "runtime/input_file.h"

namespace lanewise {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;

// "; make it with: python configs/models/net.py", or "".
std::string how_to_make(const std::string& path) {
  const fs::path archive(path);
  const fs::path folder = archive.has_parent_path() ? archive.parent_path() : fs::path(".");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string stem = entry.path().stem();
    if (entry.path().extension() != ".py" || !archive.stem().string().starts_with(stem)) continue;
    return fmt::format("; make it with: python {} (of a Python that has PyTorch, as .venv/bin/python)",
                       entry.path().string());
  }
  return "";
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

void check_archive(const std::string& path) {
  try {
    const InputFile file(path);
  } catch (const Error& error) {
    throw Error(Exit::kData, error.what() + how_to_make(path));
  }
}

const std::string& Archives::read(const std::string& path, const std::string& sha256) {
  auto found = read_.find(path);
  if (found == read_.end()) {
    check_archive(path);
    try {
      found = read_.emplace(path, File{InputFile(path).text(kMostBytes), ""}).first;
    } catch (const Error& error) {
      throw Error(Exit::kData, error.what());
    }
  }
  auto& [bytes, is] = found->second;
  if (sha256.empty()) return bytes;
  if (is.empty()) is = sha256_hex(bytes);
  if (is != lower(sha256)) {
    throw Error(Exit::kData, fmt::format("the SHA-256 of {} is {}, and {} is asked for; it was changed, or is another "
                                         "file: put the right one there, or give its sum as sha256",
                                         path, is, lower(sha256)));
  }
  return bytes;
}

std::string sha256_problem(const std::string& text) {
  const bool good = text.empty() || (text.size() == kSha256Digits &&
                                     std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; }));
  return good ? "" : fmt::format("a SHA-256 has {} hexadecimal digits; sha256sum FILE prints it", kSha256Digits);
}

}  // namespace lanewise
