// A Model is the function between a batch and its prediction, over parameters that it does not own.
//
// A lane has a Model of its own, bound to the lane's leaf tensors (runtime/replica.h). Row i of a prediction depends on
// row i of the input and of the state alone, but in the training of a model with buffers, which looks at all rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/registry.h"
#include "graph/signature.h"
#include "runtime/kernel.h"
#include "runtime/values.h"

namespace lanewise {

class Dropout;

// One parameter: its state-dict name as PyTorch would name it, its shape, and its initial values: those given, else
// uniform in [mean - bound, mean + bound] as PyTorch's own layers have them.
struct ParameterSpec {
  std::string name;
  Shape shape;
  double bound = 0, mean = 0;
  at::Tensor given;  // of the weights' dtype; undefined: drawn
};

// A module buffer: what a layer keeps beside its parameters, which no gradient reaches. One that training changes is
// kept a lane, as numbers of the weights' dtype; a `fixed` one is the same for all lanes, of a dtype of its own.
struct BufferSpec {
  std::string name;
  Shape shape;
  double initial = 0;
  std::size_t after = 0;  // so many parameters come before it in the state dict
  at::Tensor given;       // its initial values, in place of `initial`, and its dtype in the state dict
  bool fixed = false;     // requires `given`
};

// What a forward goes by besides x and state.
struct Pass {
  const Dropout* dropout = nullptr;  // nullptr: no dropout, as in an evaluation
  std::span<const Tag> rows;         // of x: k * n, time-major; may be empty where nothing below needs them
  bool training = false;             // layers with buffers go by these rows, fillers aside, and bring them up to date
  bool recorded = false;             // a device may write down the operations on tensors: all is done by these
};

class Model {
 public:
  virtual ~Model() = default;

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const;
  const std::vector<BufferSpec>& buffers() const { return buffer_specs_; }

  // The tensors to compute with, in the order and shapes of parameters() and buffers(). Kept by reference count.
  void bind(std::vector<at::Tensor> leaves, std::vector<at::Tensor> buffers = {});

  // Values of recurrent state that a stream has; 0: what comes depends on no earlier sample, and `state` is not looked
  // at.
  virtual std::int64_t state_size() const { return 0; }

  // x [k, n, …sample] -> prediction [k, n, …output]; state [n, state_size()] becomes the rows after the last of the k
  // steps, as part of the autograd graph. One call with k steps computes what k calls with one step do. Requires
  // bind().
  virtual at::Tensor forward(const at::Tensor& x, at::Tensor& state, const Pass& pass) const = 0;

  // Why the operations of a forward are not the same for all batches of a shape; "" where they are. A device may then
  // record them once.
  virtual std::string unrecordable() const { return ""; }

  // What to compute batches of so many rows with instead of forward() and autograd; null: nothing. Owned by the model,
  // which is bound. Requires bind().
  virtual Kernel* kernel(std::int64_t) { return nullptr; }

 protected:
  // For kernel(), of a model that is an mlp of these settings and whose parameter "kernel" is `asked`.
  Kernel* mlp_kernel(const std::string& asked, std::int64_t rows, const MlpSettings& settings);

  std::vector<ParameterSpec> parameters_;
  std::vector<BufferSpec> buffer_specs_;
  std::vector<at::Tensor> leaves_, buffers_;
  std::unique_ptr<Kernel> kernel_;  // over these leaves, made when it is first asked for
};

// `input` is the shape of a sample's x, `output` that of the prediction for it.
struct ModelType : PartType {
  // Throws Error(kPipeline) saying which shapes it takes when `input` or `output` do not suit it.
  std::function<std::unique_ptr<Model>(const nlohmann::json& params, const Shape& input, const Shape& output)> make;

  // A type whose code is in a file has these in place of make(), for only a run may load code. check() loads nothing;
  // it throws Error(kPipeline), or Error(kData) where the file is not there. load() reads the file once and tries it
  // out; what it gives makes one model a lane. It throws those, naming the file.
  std::function<void(const nlohmann::json& params, const Shape& input, const Shape& output)> check;
  std::function<std::function<std::unique_ptr<Model>()>(const nlohmann::json& params, const Shape& input,
                                                        const Shape& output, at::ScalarType dtype)>
      load;
  // What a resumed run does not repeat, by these parameters; "": it repeats all, as where this is null.
  std::function<std::string(const nlohmann::json& params)> inexact;
};

const std::vector<ModelType>& model_types();                // linear, mlp, gru, lstm, torchscript
const ModelType& model_type(const std::string& name);       // Requires: it is in the table
const ModelType* find_model_type(const std::string& name);  // null: it is not
// Adds a type to the table. To be called before any node is made, and by one thread.
void add_model_type(ModelType type);
ModelType linear_model();
ModelType mlp_model();
ModelType gru_model();
ModelType lstm_model();
ModelType torchscript_model();

constexpr std::int64_t kMostWidth = 1 << 24;  // of any layer

// The parameters that every model type has. Sizes are inferred from the samples when absent; given, they must agree.
struct ModelSize {
  std::optional<std::int64_t> inputs, outputs;
  Path init;  // a safetensors file with the initial weights; "": drawn from the run's seed

  void fields(Fields& f);
  // Throws Error(kPipeline) when the model called `type` would take or give another number of values.
  void check(const std::string& type, std::int64_t values_in, std::int64_t values_out) const;
};

// Adds the parameter "dropout": a probability below 1.
void add_dropout(Fields& f, double* dropout, const std::string& help);

// Adds the parameter "kernel": auto, library or native.
void add_kernel(Fields& f, std::string* kernel);
// Whether this kernel is native for so many products of numbers that are worked out together.
bool takes_native(const std::string& kernel, std::int64_t work);

// A model type that is told by a class M(const M::Params&, const Shape& input, const Shape& output) and its Params.
template <class M>
ModelType make_model_type(const std::string& name, const std::string& help) {
  return {{name, help, [](Fields& f) { typename M::Params().fields(f); }},
          [](const nlohmann::json& params, const Shape& input, const Shape& output) {
            return std::make_unique<M>(read_checked<typename M::Params>(params), input, output);
          }};
}

// [k, n, …output] for x [k, n, …sample].
Shape prediction_shape(const at::Tensor& x, const Shape& output);

// The output shape that `params` ask for by "outputs", or `fallback` when absent.
Shape output_shape(const nlohmann::json& params, const Shape& fallback);

}  // namespace lanewise
