#include "tools/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "graph/error.h"

namespace lanewise {
namespace {

std::atomic<int> g_signal{0}, g_status{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler touches it");

void on_stop(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) _exit(static_cast<int>(Exit::kStopped));
}

void on_status(int) { g_status.store(1); }

void catch_signal(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

}  // namespace

void prepare_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // The lowest free descriptor is this one, since those below are open. Reading from a closed 0 ends at once; writing
    // to a closed 1 fails, as it is open for reading only.
    if (open("/dev/null", descriptor == 2 ? O_WRONLY : O_RDONLY) != descriptor)
      _exit(static_cast<int>(Exit::kInternal));
  }
}

void ignore_write_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void catch_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    catch_signal(number, on_stop);
  }
}

int stop_signal() { return g_signal.load(); }

void catch_status_signal() { catch_signal(SIGUSR1, on_status); }

bool status_wanted() { return g_status.exchange(0) != 0; }

}  // namespace lanewise
