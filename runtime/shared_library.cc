#include "runtime/shared_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "graph/error.h"

namespace lanewise {
namespace {

// Whether its headers speak of bytes behind its end. What is no ELF file at all the loader refuses by itself.
bool is_cut_off(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) return false;  // none of this path: the loader looks elsewhere
  const auto ends = [size](std::uint64_t begin, std::uint64_t bytes) { return begin <= size && bytes <= size - begin; };
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (!ends(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize)) return true;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (!file.read(reinterpret_cast<char*>(segments.data()),
                 static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr))))
    return true;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && !ends(segment.p_offset, segment.p_filesz)) return true;
  }
  return false;
}

}  // namespace

void* open_library(const std::string& path, int flags) {
  if (is_cut_off(path)) {
    throw Error(Exit::kDevice,
                path + " does not load (its end is missing, as after a copy that was broken off; put it there again)");
  }
  void* const library = ::dlopen(path.c_str(), flags);
  if (library == nullptr) throw Error(Exit::kDevice, fmt::format("{} does not load ({})", path, ::dlerror()));
  return library;
}

}  // namespace lanewise
