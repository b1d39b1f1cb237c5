// The World is all the processes that train one model together. By itself it is one process alone; join_world() makes
// it of several, on torchrun's terms.
//
// What several processes do together, each does in the same order: in the reduction, in the optimizer, and between two
// steps. When a process fails or is gone, whatever the others do together next throws, in all of them with the same
// exit code and reason.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/error.h"
#include "runtime/communicator.h"

namespace lanewise {

class World {
 public:
  virtual ~World() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool first() const { return rank_ == 0; }
  // What a process is called in messages: "rank 1 (lane4, lane5)".
  virtual std::string name_of(int rank) const { return "rank " + std::to_string(rank); }

  // What each process gives, by rank.
  virtual std::vector<std::string> gather(const std::string& own) { return {own}; }
  // What the first process gives.
  virtual std::string from_first(const std::string& own) { return own; }
  // The rows of all processes, by rank: own [n of this process, …] -> [n of all, …]. The other sizes are the same in
  // all.
  virtual at::Tensor gather_rows(const at::Tensor& own) { return own; }
  // Adds up the lanes of all processes. `reduction`: reference, deterministic, fast.
  virtual std::unique_ptr<Communicator> communicator(const std::string& reduction);

  // Whether one of the processes wants all to break off what each does by itself; `here`: this one does. To be asked
  // again and again, from any thread: what another wants is known a moment later.
  virtual bool break_off(bool here) { return here; }

  // To be called before a process leaves because of an error of its own, so that the others know why. Never throws.
  virtual void tell_failure(Exit, const std::string&) {}

 protected:
  int rank_ = 0, size_ = 1;
};

// Hosts that the processes are on, as torchrun tells in WORLD_SIZE and LOCAL_WORLD_SIZE, which is the same on all; 1
// where it does not, or not in numbers.
int hosts();

// A process's place, as torchrun tells it in the environment.
struct ProcessPlace {
  int rank = 0, size = 1;
  bool one_host = true;  // all processes are on one
  std::string address;   // of the store
  int port = 0;
  bool agent_serves = false;  // the store is there, else the first process serves it
};

// Nothing: this process is alone (no WORLD_SIZE, or 1). Throws Error(kCommandLine) naming a variable that is malformed.
std::optional<ProcessPlace> process_place();

struct JoinOptions {
  std::chrono::milliseconds timeout{60000};  // that a process may be late or silent
  std::string agreement;                     // what must be the same in every process
  // What is different between the first process's agreement and that of another one, for a person.
  std::function<std::string(const std::string& first, const std::string& other)> difference;
  std::function<int()> signal = [] { return 0; };  // asked now and then; a signal number once one came
  std::vector<std::string> processes;              // what each is called in messages: "rank 1 (lane4, lane5)"
};

// Tells processes that are about to meet that this one cannot come, before it leaves. Never throws. Of `options` the
// timeout and the signal count.
void tell_absence(const ProcessPlace& place, const JoinOptions& options, Exit exit, const std::string& reason);

// Meets the other processes. Throws Error(kPeer) in each of them when one does not come, or does not agree. The process
// has to ignore SIGPIPE: the libraries' writes raise it when the other process is gone.
std::unique_ptr<World> join_world(const ProcessPlace& place, const JoinOptions& options);

}  // namespace lanewise
