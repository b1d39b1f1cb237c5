#include "runtime/shared_rounds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>
#include <stdexcept>
#include <thread>

namespace lanewise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;
constexpr int kMostProcesses = 256;
constexpr std::chrono::microseconds kSpin{30};  // waking a thread that sleeps takes longer
constexpr std::chrono::milliseconds kLook{20};  // between looks whether the others are still there

std::size_t memory_of_host() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t whole_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The byte of the file that a process holds a lock on while it lives.
struct flock lock_of(int rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

struct Mapped {
  int file = -1;
  void* memory = MAP_FAILED;

  void drop(std::size_t size) const {
    if (memory != MAP_FAILED) ::munmap(memory, size);
    if (file >= 0) ::close(file);
  }
};

// Opens what the first process has made, by its path, and maps it. `token`: what it begins with.
Mapped map(const std::string& path, std::size_t size, std::uint64_t token, int rank) {
  Mapped mapped;
  mapped.file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (mapped.file < 0 || ::lseek(mapped.file, 0, SEEK_END) != static_cast<off_t>(size)) return mapped;
  struct flock lock = lock_of(rank, F_WRLCK);
  if (::fcntl(mapped.file, F_OFD_SETLK, &lock) != 0) return mapped;
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, mapped.file, 0);
  if (memory == MAP_FAILED) return mapped;
  if (*static_cast<const std::uint64_t*>(memory) == token) {
    mapped.memory = memory;
  } else {
    ::munmap(memory, size);
  }
  return mapped;
}

}  // namespace

struct SharedRounds::Header {
  std::uint64_t token = 0;
  std::atomic<std::uint32_t> closed;
  alignas(kLine) std::atomic<std::uint32_t> bell;  // rung whenever something has changed
  std::atomic<std::uint32_t> waiting;              // processes that sleep until it rings
  struct alignas(kLine) Posted {
    std::atomic<std::uint64_t> rounds;
  } posted[kMostProcesses];

  void ring() {
    bell.fetch_add(1);
    if (waiting.load() > 0) ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Sleeps until it rings, unless it has since `heard`, and for some time at most.
  void wait(std::uint32_t heard) {
    const timespec most{0, std::chrono::nanoseconds(kLook).count()};
    ::syscall(SYS_futex, &bell, FUTEX_WAIT, heard, &most, nullptr, 0);
  }
};

std::unique_ptr<SharedRounds> SharedRounds::make(World& world, std::size_t bytes, std::chrono::milliseconds timeout) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
  if (world.size() > kMostProcesses) return nullptr;
  bytes = whole_lines(bytes);
  const std::size_t size = whole_lines(sizeof(Header)) + 2 * static_cast<std::size_t>(world.size()) * bytes;
  int made = -1;
  std::string told;  // "PATH TOKEN", or nothing
  if (world.first()) {
    std::uint64_t token = 0;
    made = ::memfd_create("lanewise", MFD_CLOEXEC);
    // Allocated now: who touches memory that is not there later dies of it.
    if (made >= 0 && size <= memory_of_host() / 2 && ::posix_fallocate(made, 0, static_cast<off_t>(size)) == 0 &&
        ::getrandom(&token, sizeof token, 0) == sizeof token &&
        ::pwrite(made, &token, sizeof token, 0) == sizeof token) {
      told = fmt::format("/proc/{}/fd/{} {}", ::getpid(), made, token);
    }
  }
  told = world.from_first(told);
  Mapped mapped;
  if (!told.empty()) {
    const std::size_t space = told.rfind(' ');
    mapped = map(told.substr(0, space), size, std::stoull(told.substr(space + 1)), world.rank());
  }
  bool all = true;
  for (const std::string& one : world.gather(mapped.memory != MAP_FAILED ? "mapped" : "")) all = all && !one.empty();
  if (made >= 0) ::close(made);
  if (!all) {
    mapped.drop(size);
    return nullptr;
  }
  return std::unique_ptr<SharedRounds>(
      new SharedRounds(mapped.file, mapped.memory, size, bytes, world.rank(), world.size(), timeout));
}

SharedRounds::SharedRounds(int file, void* memory, std::size_t size, std::size_t bytes, int rank, int processes,
                           std::chrono::milliseconds timeout)
    : file_(file),
      memory_(memory),
      size_(size),
      bytes_(bytes),
      rank_(rank),
      processes_(processes),
      timeout_(timeout),
      header_(*static_cast<Header*>(memory)) {}

SharedRounds::~SharedRounds() { Mapped{file_, memory_}.drop(size_); }

void* SharedRounds::at(int rank, std::uint64_t round) const {
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + round % 2;
  return static_cast<std::byte*>(memory_) + whole_lines(sizeof(Header)) + index * bytes_;
}

void* SharedRounds::own() { return at(rank_, round_ + 1); }

const void* SharedRounds::part(int rank) const { return at(rank, round_); }

bool SharedRounds::all_posted() const {
  for (int r = 0; r < processes_; ++r) {
    if (header_.posted[r].rounds.load() < round_) return false;
  }
  return true;
}

void SharedRounds::exchange() {
  header_.posted[rank_].rounds.store(++round_);
  header_.ring();
  const Clock::time_point begun = Clock::now();
  do {
    for (int i = 0; i < 64; ++i) {
      if (all_posted()) return;
      std::this_thread::yield();
    }
  } while (Clock::now() - begun < kSpin);
  while (true) {
    header_.waiting.fetch_add(1);
    const std::uint32_t heard = header_.bell.load();
    const bool over = all_posted() || header_.closed.load() != 0;
    if (!over) header_.wait(heard);
    header_.waiting.fetch_sub(1);
    if (all_posted()) return;
    check_others();
    if (Clock::now() - begun > timeout_) throw std::runtime_error("a process is silent");
  }
}

void SharedRounds::check_others() const {
  if (header_.closed.load() != 0) throw std::runtime_error("a process has left");
  for (int r = 0; r < processes_; ++r) {
    struct flock lock = lock_of(r, F_WRLCK);
    const bool alive = r == rank_ || ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
    if (!alive && !all_posted()) throw std::runtime_error("a process is gone");
  }
}

void SharedRounds::close() {
  header_.closed.store(1);
  header_.ring();
}

}  // namespace lanewise
