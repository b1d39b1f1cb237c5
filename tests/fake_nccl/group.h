// The threads that call, and their groups. A call outside a group is a group of its own.
//
// All of it is the Library's and guarded by its mutex.
#pragma once

#include <nccl.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/fake_nccl/comm.h"

namespace fake_nccl {

// What is to be launched together.
struct Group {
  int depth = 0;
  int number = 0;  // 0: none, a call stands alone
  ncclResult_t error = ncclSuccess;
  std::optional<bool> blocking;
  std::vector<CommPtr> inits, finalizes;
  std::vector<Op> ops;

  std::vector<CommPtr> comms() const {
    std::vector<CommPtr> all = inits;
    all.insert(all.end(), finalizes.begin(), finalizes.end());
    for (const Op& op : ops) all.push_back(op.comm);
    return all;
  }
};

struct Thread {
  int number = 0;
  std::optional<int> device;
  Group group;  // the open one

  std::string str() const { return text("thread ", number); }
};

// A non-blocking group that has ended and waits for the background thread to launch it, or to tell that it failed.
struct Launch {
  Time due;
  Group group;
  ncclResult_t error = ncclSuccess;
};

}  // namespace fake_nccl
