// The one file that knows TorchScript.
#include "runtime/script_module.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cctype>
#include <cstring>
#include <sstream>

#include "graph/error.h"
#include "runtime/library_error.h"
#include "runtime/random.h"
#include "runtime/tensors.h"
#include "runtime/values.h"

namespace lanewise {
namespace {

using torch::jit::IValue;
using torch::jit::Module;

constexpr const char* kWriteIt = "write it with torch.jit.script(module).save(\"FILE\")";

// An exception's text without the stack and empty lines at its end.
std::string text_of(const std::exception& error) {
  std::string text = what_without_stack(error);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  return text;
}

// Memory as the library's reader wants it; a damaged archive may ask for what lies beyond.
class Bytes final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Bytes(const std::string& bytes) : bytes_(bytes) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t from, void* into, std::size_t n, const char*) const override {
    if (from > bytes_.size() || n > bytes_.size() - from) throw std::runtime_error("the file is too short");
    std::memcpy(into, bytes_.data() + from, n);
    return n;
  }

 private:
  const std::string& bytes_;
};

Module load(const std::string& bytes, const std::string& path) {
  if (!bytes.starts_with("PK")) {
    throw Error(Exit::kData, fmt::format("{} is no TorchScript archive; {}", path, kWriteIt));
  }
  if (bytes.find("constants.pkl") == std::string::npos) {
    throw Error(Exit::kData, fmt::format("{} holds no TorchScript, or only a part of it; what torch.save or "
                                         "torch.export wrote is for Python alone: {}",
                                         path, kWriteIt));
  }
  try {
    return torch::jit::load(std::make_shared<Bytes>(bytes), at::Device(at::kCPU));
  } catch (const std::exception& error) {
    throw Error(Exit::kData, fmt::format("{} is damaged, or for another version of PyTorch; write it anew. LibTorch "
                                         "says: {}",
                                         path, text_of(error)));
  }
}

// Where a module holds a tensor: an attribute, and elements of lists that are the same tensor.
struct Slot {
  torch::jit::ObjectPtr owner;
  std::size_t attribute;
  std::vector<std::pair<c10::List<at::Tensor>, std::size_t>> elements;
};

struct Found {
  std::vector<ScriptModule::Named> tensors;
  std::vector<Slot> slots;
  std::vector<c10::List<at::Tensor>> lists;
  std::vector<std::pair<std::string, std::pair<torch::jit::ObjectPtr, std::size_t>>> others;  // by name
};

// A module's own parameters, then its buffers, then those of the modules in it, as a state dict has them.
void find(const torch::jit::ObjectPtr& module, const std::string& prefix, Found& found) {
  const auto& type = *module->type();
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < type.numAttributes(); ++i) visit(i, module->getSlot(i));
  };
  const auto add = [&](std::size_t i, const IValue& value, bool parameter) {
    const at::Tensor& tensor = value.toTensor();
    found.tensors.push_back(
        {prefix + type.getAttributeName(i), tensor, parameter, parameter && tensor.requires_grad()});
    found.slots.push_back({module, i, {}});
  };
  const auto is_buffer = [&](std::size_t i, const IValue& value) {
    return value.isTensor() && value.toTensor().defined() && !type.is_parameter(i) &&
           type.getAttribute(i)->isSubtypeOf(*c10::TensorType::get());
  };
  each([&](std::size_t i, const IValue& value) {
    if (type.is_parameter(i) && value.isTensor() && value.toTensor().defined()) add(i, value, true);
  });
  each([&](std::size_t i, const IValue& value) {
    if (is_buffer(i, value)) add(i, value, false);
  });
  each([&](std::size_t i, const IValue& value) {
    const std::string& name = type.getAttributeName(i);
    if (value.isModule()) return find(value.toObject(), prefix + name + ".", found);
    if (value.isTensorList()) found.lists.push_back(value.toTensorList());
    if (!type.is_parameter(i) && !is_buffer(i, value) && name != "training")
      found.others.push_back({prefix + name, {module, i}});
  });
}

// The bytes from the first to the last element.
std::pair<const char*, const char*> extent(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* const begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

void refuse_what_cannot_be_trained(const std::vector<ScriptModule::Named>& tensors, const std::string& path) {
  for (const ScriptModule::Named& t : tensors) {
    const bool number = t.value.is_floating_point();
    if (t.value.is_complex() || t.value.is_quantized() || t.value.layout() != at::kStrided ||
        (t.parameter && !number)) {
      throw Error(Exit::kPipeline,
                  fmt::format("{}: {} \"{}\" holds {}{}, and models here have real numbers{}", path,
                              t.parameter ? "parameter" : "buffer", t.name, at::toString(t.value.scalar_type()),
                              t.value.layout() == at::kStrided ? "" : " (sparse)",
                              t.parameter && !number ? "; make it a buffer, which no gradient reaches" : ""));
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!overlap(tensors[i].value, tensors[j].value)) continue;
      throw Error(Exit::kPipeline,
                  fmt::format("{}: \"{}\" and \"{}\" share their memory (tied weights), and here each tensor has one "
                              "name; let the module hold it once and use it twice",
                              path, tensors[j].name, tensors[i].name));
    }
  }
}

// For comparing: tensors by which one and which version they are, containers by their elements.
std::string text_of(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return "no tensor";
    return fmt::format("tensor {} of version {}", static_cast<const void*>(tensor.unsafeGetTensorImpl()),
                       tensor._version());
  }
  std::string text = value.tagKind();
  if (value.isList()) {
    for (const IValue& element : value.toListRef()) text += " [" + text_of(element) + "]";
  } else if (value.isTuple()) {
    for (const IValue& element : value.toTupleRef().elements()) text += " (" + text_of(element) + ")";
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict())
      text += " {" + text_of(entry.key()) + ": " + text_of(entry.value()) + "}";
  } else if (value.isInt() || value.isDouble() || value.isBool() || value.isString()) {
    std::ostringstream printed;
    printed << value;
    text += " " + printed.str();
  }
  return text;
}

}  // namespace

at::Tensor trial_values(const Shape& shape, at::ScalarType dtype, const std::string& purpose) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  Random random(0, "trial", purpose);
  for (double& value : values) value = random.uniform(0.05, 0.95);
  return make_tensor(values, shape, dtype);
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  constexpr double kAlike = 1e-3;
  return at::allclose(a, b, kAlike, kAlike, /*equal_nan=*/true);
}

at::Tensor library_random_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

struct ScriptModule::Impl {
  Module module;
  Found found;
  std::optional<bool> training;
};

ScriptModule::ScriptModule(const std::string& bytes, std::string path, at::ScalarType dtype)
    : impl_(std::make_unique<Impl>(Impl{load(bytes, path), {}, {}})), path_(std::move(path)) {
  Found& found = impl_->found;
  find(impl_->module._ivalue(), "", found);
  refuse_what_cannot_be_trained(found.tensors, path_);
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    Named& named = found.tensors[i];
    for (const c10::List<at::Tensor>& list : found.lists) {
      for (std::size_t e = 0; e < list.size(); ++e) {
        const at::Tensor element = list.get(e);
        if (element.defined() && overlap(element, named.value)) found.slots[i].elements.emplace_back(list, e);
      }
    }
  }
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    Named& named = found.tensors[i];
    named.value = named.value.detach().contiguous();
    if (named.value.is_floating_point()) named.value = named.value.to(dtype);
    put(i, named.value);
  }
  if (!impl_->module.find_method("forward")) {
    throw Error(Exit::kPipeline, fmt::format("{} has no forward; {} a module that has one", path_, kWriteIt));
  }
}

ScriptModule::~ScriptModule() = default;

std::vector<ScriptModule::Named> ScriptModule::take_tensors() { return std::move(impl_->found.tensors); }

void ScriptModule::put(std::size_t i, const at::Tensor& value) {
  Slot& slot = impl_->found.slots[i];
  slot.owner->setSlot(slot.attribute, value);
  for (auto& [list, element] : slot.elements) list.set(element, value);
}

at::Tensor ScriptModule::at(std::size_t i) const {
  const Slot& slot = impl_->found.slots[i];
  return slot.owner->getSlot(slot.attribute).toTensor();
}

bool ScriptModule::maps(std::size_t inputs, std::size_t outputs) const {
  const c10::FunctionSchema& schema = impl_->module.get_method("forward").function().getSchema();
  const auto is_tensor = [](const c10::TypePtr& type) {
    const auto optional = type->cast<c10::OptionalType>();
    return (optional ? optional->getElementType() : type)->isSubtypeOf(*c10::TensorType::get());
  };
  const std::vector<c10::Argument>& arguments = schema.arguments();  // the first is self
  if (arguments.size() < inputs + 1 || schema.returns().size() != 1) return false;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (i <= inputs ? !is_tensor(arguments[i].type()) : !arguments[i].default_value().has_value()) return false;
  }
  const c10::TypePtr& given = schema.returns().front().type();
  if (outputs == 1) return given->isSubtypeOf(*c10::TensorType::get());
  const auto tuple = given->cast<c10::TupleType>();
  return tuple && tuple->elements().size() == outputs && std::ranges::all_of(tuple->elements(), is_tensor);
}

std::string ScriptModule::signature() const {
  const c10::FunctionSchema& schema = impl_->module.get_method("forward").function().getSchema();
  std::string text;
  for (std::size_t i = 1; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", argument.name(), argument.type()->repr_str());
  }
  return fmt::format("forward({}) -> {}", text,
                     schema.returns().empty() ? "None" : schema.returns().front().type()->repr_str());
}

std::optional<std::int64_t> ScriptModule::integer(const std::string& name) const {
  const auto& module = impl_->module;
  if (module.hasattr(name) && module.attr(name).isInt()) return module.attr(name).toInt();
  if (const auto constant = module.type()->findConstant(name); constant && constant->isInt()) return constant->toInt();
  return std::nullopt;
}

std::vector<at::Tensor> ScriptModule::forward(const std::vector<at::Tensor>& inputs, bool training) {
  if (impl_->training != training) impl_->module.train(training);
  impl_->training = training;
  try {
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    const IValue result = impl_->module.forward({inputs.begin(), inputs.end()});
    if (result.isTensor()) return {result.toTensor()};
    std::vector<at::Tensor> all;
    for (const IValue& one : result.toTupleRef().elements())
      all.push_back(one.isTensor() ? one.toTensor() : at::Tensor());
    return all;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(Exit::kPipeline, fmt::format("{}: its forward fails: {}", path_, text_of(error)));
  }
}

std::vector<std::string> ScriptModule::other_attributes() const {
  std::vector<std::string> lines;
  for (const auto& [name, place] : impl_->found.others)
    lines.push_back(fmt::format("{}: {}", name, text_of(place.first->getSlot(place.second))));
  return lines;
}

}  // namespace lanewise
