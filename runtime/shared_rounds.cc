#include "runtime/shared_rounds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

}  // namespace

// Mapped memory of a file, with this process's lock on its byte.
class SharedRounds::Memory {
 public:
  // Opens what the first process has made, by its path. `token`: what it begins with, which nothing else does.
  Memory(const std::string& path, std::size_t size, std::uint64_t token, int rank)
      : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)), size_(size) {
    std::uint64_t found = 0;
    if (file_.get() < 0 || ::lseek(file_.get(), 0, SEEK_END) != static_cast<off_t>(size) ||
        ::pread(file_.get(), &found, sizeof found, 0) != sizeof found || found != token) {
      return;
    }
    struct flock lock = lock_of(rank, F_WRLCK);
    if (::fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) return;
    begin_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  }
  ~Memory() {
    if (begin_ != MAP_FAILED) ::munmap(begin_, size_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool mapped() const { return begin_ != MAP_FAILED; }
  void* begin() const { return begin_; }
  bool holds_lock(int rank) const {
    struct flock lock = lock_of(rank, F_WRLCK);
    return ::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }

 private:
  const File file_;
  const std::size_t size_;
  void* begin_ = MAP_FAILED;
};

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
  const File made(world.first() ? ::memfd_create("lanewise", MFD_CLOEXEC) : -1);
  std::string told;  // "PATH TOKEN", or nothing
  std::uint64_t token = 0;
  // Allocated now: who touches memory that is not there later dies of it.
  if (made.get() >= 0 && size <= memory_of_host() / 2 &&
      ::posix_fallocate(made.get(), 0, static_cast<off_t>(size)) == 0 &&
      ::getrandom(&token, sizeof token, 0) == sizeof token &&
      ::pwrite(made.get(), &token, sizeof token, 0) == sizeof token) {
    told = fmt::format("/proc/{}/fd/{} {}", ::getpid(), made.get(), token);
  }
  told = world.from_first(told);
  std::unique_ptr<Memory> memory;
  if (!told.empty()) {
    const std::size_t space = told.rfind(' ');
    memory = std::make_unique<Memory>(told.substr(0, space), size, std::stoull(told.substr(space + 1)), world.rank());
  }
  const bool mapped = memory != nullptr && memory->mapped();
  if (std::ranges::count(world.gather(mapped ? "mapped" : ""), "") > 0) return nullptr;
  return std::unique_ptr<SharedRounds>(new SharedRounds(std::move(memory), bytes, world.rank(), world.size(), timeout));
}

SharedRounds::SharedRounds(std::unique_ptr<Memory> memory, std::size_t bytes, int rank, int processes,
                           std::chrono::milliseconds timeout)
    : memory_(std::move(memory)),
      bytes_(bytes),
      rank_(rank),
      processes_(processes),
      timeout_(timeout),
      header_(*static_cast<Header*>(memory_->begin())) {}

SharedRounds::~SharedRounds() = default;

void* SharedRounds::at(int rank, std::uint64_t round) const {
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + round % 2;
  return static_cast<std::byte*>(memory_->begin()) + whole_lines(sizeof(Header)) + index * bytes_;
}

void* SharedRounds::own() { return at(rank_, round_ + 1); }

const void* SharedRounds::part(int rank) const { return at(rank, round_); }

std::vector<int> SharedRounds::late() const {
  std::vector<int> ranks;
  for (int r = 0; r < processes_; ++r) {
    if (header_.posted[r].rounds.load() < round_) ranks.push_back(r);
  }
  return ranks;
}

bool SharedRounds::all_posted() const {
  return std::all_of(header_.posted, header_.posted + processes_,
                     [this](const Header::Posted& p) { return p.rounds.load() >= round_; });
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
  Clock::time_point looked = begun;
  while (true) {
    header_.waiting.fetch_add(1);
    const std::uint32_t heard = header_.bell.load();
    const bool over = all_posted() || header_.closed.load() != 0;
    if (!over) header_.wait(heard);
    header_.waiting.fetch_sub(1);
    if (all_posted()) return;
    if (header_.closed.load() != 0) throw std::runtime_error("a process has left");
    const Clock::time_point now = Clock::now();
    if (now - looked < kLook) continue;
    looked = now;
    std::vector<int> gone = late();
    std::erase_if(gone, [this](int rank) { return memory_->holds_lock(rank); });
    if (all_posted()) return;  // and left at once
    if (!gone.empty()) throw Missing("a process is gone", std::move(gone));
    if (now - begun > timeout_) throw Missing("a process is silent", late());
  }
}

void SharedRounds::close() {
  header_.closed.store(1);
  header_.ring();
}

}  // namespace lanewise
