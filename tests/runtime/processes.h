// Processes that are threads of this one, for tests of what they do together.
#pragma once

#include <fmt/format.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/world.h"
#include "tests/ports.h"

namespace lanewise {

// What `act` returns in each of so many processes, or what it throws, by rank. One alone needs no others. `one_host`:
// they may share memory.
inline std::vector<std::string> in_processes(int processes, const std::function<std::string(World&)>& act,
                                             std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                             bool one_host = true) {
  std::vector<std::string> results(processes);
  if (processes == 1) {
    World alone;
    return {act(alone)};
  }
  signal(SIGPIPE, SIG_IGN);  // as join_world() asks
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < processes; ++rank) {
    threads.emplace_back([&, rank] {
      JoinOptions options;
      options.timeout = timeout;
      for (int r = 0; r < processes; ++r) options.processes.push_back(fmt::format("rank {} (lane{})", r, r));
      try {
        const auto world = join_world(
            {.rank = rank, .size = processes, .one_host = one_host, .address = "127.0.0.1", .port = port}, options);
        results[rank] = act(*world);
        world->gather("");  // nobody leaves before the others have done theirs
      } catch (const Error& error) {
        results[rank] += fmt::format("{}: {}", static_cast<int>(error.exit()), error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace lanewise
