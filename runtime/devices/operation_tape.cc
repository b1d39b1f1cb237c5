#include "runtime/devices/operation_tape.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <cstddef>

#include "graph/error.h"

namespace lanewise {
namespace {

// Below autograd, so that a backward is written down as its operations, and above all backends; LibTorch leaves this
// key to others (c10/core/DispatchKey.h).
constexpr auto kKey = c10::DispatchKey::Fake;

thread_local OperationTape* current = nullptr;

void take_down(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  current->take(operation, keys, *stack);
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> all;
  if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) {
      if (one.isTensor()) all.push_back(one.toTensor());
    }
  }
  return all;
}

// The same value with copies of its tensors.
c10::IValue copied(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(value.toTensor().clone()) : value;
  c10::List<at::Tensor> copies;
  for (const at::Tensor& t : value.toTensorVector()) copies.push_back(t.clone());
  return copies;
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) { return a.storage().is_alias_of(b.storage()); }

// Two sets of results of one operation, tensor by tensor.
void copy_over(const c10::IValue& from, const c10::IValue& to) {
  const std::vector<at::Tensor> source = tensors_of(from), target = tensors_of(to);
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i].defined() && !share_memory(source[i], target[i])) target[i].copy_(source[i]);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&take_down>()); }

OperationTape::OperationTape(const std::function<void()>& work) {
  const c10::impl::IncludeDispatchKeyGuard all_come_by(kKey);
  current = this;
  try {
    work();
  } catch (...) {
    current = nullptr;
    throw;
  }
  current = nullptr;
}

void OperationTape::take(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                         std::vector<c10::IValue>& stack) {
  const c10::impl::ExcludeDispatchKeyGuard within(kKey);
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::FunctionSchema& schema = operation.schema();
  if (operation.hasTag(at::Tag::data_dependent_output) || operation.hasTag(at::Tag::dynamic_output_shape))
    throw Error(Exit::kDevice, fmt::format("{} waits for the GPU, and that cannot be recorded", schema.name()));

  const std::size_t count = schema.arguments().size(), first = stack.size() - count;
  const std::vector<c10::IValue> arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < count && !operation.hasTag(at::Tag::inplace_view); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || arguments[i].isNone()) continue;
    written.push_back(i);
    stack[first + i] = copied(arguments[i]);
  }
  const std::vector<c10::IValue> given(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
  // What it wrote to, it gives back.
  for (std::size_t r = first; r < stack.size(); ++r) {
    for (const std::size_t i : written) {
      if (stack[r].isAliasOf(given[i])) stack[r] = arguments[i];
    }
  }
  entries_.push_back({operation, arguments, {stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end()}});
}

void OperationTape::replay() const {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const Entry& entry : entries_) {
    std::vector<c10::IValue> stack = entry.arguments;
    entry.operation.callBoxed(&stack);
    for (std::size_t r = 0; r < stack.size(); ++r) copy_over(stack[r], entry.results[r]);
  }
}

}  // namespace lanewise
