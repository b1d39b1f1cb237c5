// An OperationTape is for emulated GPUs what a CUDA graph is for real ones: the operations on tensors that a piece of
// work asked for, to be done again on the same tensors. What the work read from the host meanwhile stays as it was, and
// it may ask nothing of the tensors' values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace lanewise {

class OperationTape {
 public:
  // Does the work once, with all operations that write to tensors of its own writing to copies instead: what was there
  // before is as it was. Throws Error(kDevice) naming an operation that reads values, and what the work throws. By one
  // thread, which replays it, too.
  explicit OperationTape(const std::function<void()>& work);
  OperationTape(const OperationTape&) = delete;
  OperationTape& operator=(const OperationTape&) = delete;

  void replay() const;

  // Called by the dispatcher: does an operation, whose arguments are the last of the stack, and writes it down.
  void take(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, std::vector<c10::IValue>& stack);

 private:
  struct Entry {
    c10::OperatorHandle operation;
    std::vector<c10::IValue> arguments, results;
  };
  std::vector<Entry> entries_;
};

}  // namespace lanewise
