// What all models share, and the table of model types.
#include "runtime/model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "runtime/values.h"

namespace lanewise {

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : parameters_) count += element_count(spec.shape);
  return count;
}

void Model::bind(std::vector<at::Tensor> leaves, std::vector<at::Tensor> buffers) {
  const auto fit = [](const std::vector<at::Tensor>& tensors, const auto& specs) {
    return std::ranges::equal(tensors, specs, [](const at::Tensor& t, const auto& s) { return t.sizes() == s.shape; });
  };
  if (!fit(leaves, parameters_) || !fit(buffers, buffer_specs_)) {
    throw Error(Exit::kInternal, "a model was bound to tensors that are not its parameters and buffers");
  }
  leaves_ = std::move(leaves);
  buffers_ = std::move(buffers);
  kernel_.reset();
}

namespace {

std::vector<ModelType>& table() {
  static std::vector<ModelType> types = {linear_model(), mlp_model(), gru_model(), lstm_model(), torchscript_model()};
  return types;
}

}  // namespace

bool takes_native(const std::string& kernel, std::int64_t work) {
  constexpr std::int64_t kMostWork = 1 << 20;  // above, the library's products are faster; measured with 64 to 256 wide
  return kernel == "native" || (kernel == "auto" && work <= kMostWork);
}

Kernel* Model::mlp_kernel(const std::string& asked, std::int64_t rows, const MlpSettings& settings) {
  if (!leaves_[0].is_cpu() || !takes_native(asked, rows * parameter_count())) return nullptr;
  if (kernel_ == nullptr) kernel_ = make_mlp_kernel(settings, leaves_);
  return kernel_.get();
}

const std::vector<ModelType>& model_types() { return table(); }

void add_model_type(ModelType type) { table().push_back(std::move(type)); }

const ModelType* find_model_type(const std::string& name) {
  const auto it = std::ranges::find(table(), name, &ModelType::name);
  return it == table().end() ? nullptr : &*it;
}

const ModelType& model_type(const std::string& name) {
  if (const ModelType* type = find_model_type(name)) return *type;
  throw Error(Exit::kInternal, fmt::format("no model type {}", name));
}

void ModelSize::fields(Fields& f) {
  f.add("inputs", &inputs, "values of a time step that the model takes; inferred from the samples")
      .between(1, kMostWidth);
  f.add("outputs", &outputs, "values that the model gives; inferred from the target and the loss")
      .between(1, kMostWidth);
  f.add("init", &init,
        "a safetensors file with the initial weights, by their state-dict names; without it, they are random");
}

void ModelSize::check(const std::string& type, std::int64_t values_in, std::int64_t values_out) const {
  if (inputs && *inputs != values_in) {
    throw Error(Exit::kPipeline,
                fmt::format("{} is told inputs {}, but the samples give it {}; leave inputs out to take "
                            "what comes",
                            type, *inputs, values_in));
  }
  if (outputs && *outputs != values_out) {
    throw Error(Exit::kPipeline, fmt::format("{} is told outputs {}, but target and loss need {}; leave outputs out to "
                                             "give what is needed",
                                             type, *outputs, values_out));
  }
}

void add_dropout(Fields& f, double* dropout, const std::string& help) {
  f.add("dropout", dropout, help).at_least(0).below(1);
}

void add_kernel(Fields& f, std::string* kernel) {
  f.add("kernel", kernel,
        "what computes it: LibTorch with autograd, or our own loops, which small batches gain by; auto: the faster one")
      .one_of({"auto", "library", "native"});
}

Shape prediction_shape(const at::Tensor& x, const Shape& output) {
  Shape shape = {x.size(0), x.size(1)};
  shape.insert(shape.end(), output.begin(), output.end());
  return shape;
}

Shape output_shape(const nlohmann::json& params, const Shape& fallback) {
  const auto outputs = params.find("outputs");
  return outputs == params.end() || outputs->is_null() ? fallback : Shape{outputs->get<std::int64_t>()};
}

}  // namespace lanewise
