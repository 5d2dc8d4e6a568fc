// Batch norm with parameters of low precision and float32 statistics, as DeepSpeed leaves them in its bf16 and fp16
// modes. CUDA's kernels accept that. The CPU's only accept it with float32 parameters, so they get copies of these.
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>

#include "common.h"
#include "cpu_fallback.h"
#include "low_precision.h"

namespace hpu_sim {
namespace {

bool is_parameter(const c10::Argument& argument) {
  return argument.name() == "weight" || argument.name() == "bias";
}

bool is_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "save_mean";
}

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

// Replaces the parameters of low precision by float32 copies if a statistic is float32. Returns their dtype.
std::optional<c10::ScalarType> cast_parameters(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema().arguments();
  auto* const arguments = &stack[stack.size() - schema.size()];
  std::optional<c10::ScalarType> dtype;
  bool has_float_statistics = false;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (!is_defined_tensor(arguments[i])) {
      continue;
    }
    const auto& tensor = arguments[i].toTensor();
    if (is_parameter(schema[i]) && is_low_precision(tensor.scalar_type())) {
      dtype = tensor.scalar_type();
    }
    has_float_statistics |= is_statistic(schema[i]) && tensor.scalar_type() == at::kFloat;
  }
  if (!dtype.has_value() || !has_float_statistics) {
    return std::nullopt;
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    if (is_parameter(schema[i]) && is_defined_tensor(arguments[i])) {
      arguments[i] = arguments[i].toTensor().to(at::kFloat);
    }
  }
  return dtype;
}

void batch_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  cast_parameters(op, *stack);
  cpu_fallback(op, stack);
}

// The gradients of the parameters have their dtype.
void batch_norm_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto dtype = cast_parameters(op, *stack);
  cpu_fallback(op, stack);
  if (!dtype.has_value()) {
    return;
  }
  for (auto gradient = stack->end() - 2; gradient != stack->end(); ++gradient) {
    if (is_defined_tensor(*gradient)) {
      *gradient = gradient->toTensor().to(*dtype);
    }
  }
}

// Operators of torch.nn.SyncBatchNorm, which have no CPU kernels. Statistics are float32 for every input dtype.
// Variances are merged by the formulas of Chan, Golub and LeVeque.
using Two = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Returns all dims of (batch, channels, ...) but the channels.
std::vector<int64_t> reduction_dims(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

// Reshapes a statistic of shape (channels) to broadcast over `input`.
at::Tensor broadcast_channels(const at::Tensor& statistic, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = statistic.numel();
  return statistic.to(at::kFloat).view(shape);
}

Two batch_norm_stats(const at::Tensor& input, double eps) {
  const auto [variance, mean] =
      at::var_mean(input.to(at::kFloat), reduction_dims(input), /*correction=*/0, /*keepdim=*/false);
  return {mean, at::rsqrt(variance + eps)};
}

bool is_given(const Optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

at::Tensor scale_channels(const at::Tensor& input, const Optional<at::Tensor>& weight) {
  return is_given(weight) ? input * broadcast_channels(*weight, input) : input;
}

void update_running(const Optional<at::Tensor>& running, const at::Tensor& value, double momentum) {
  if (is_given(running)) {
    running->copy_(*running * (1 - momentum) + value.to(running->scalar_type()) * momentum);
  }
}

// `means` and `invstds` have shape (ranks, channels); `counts` has the number of elements behind each row.
Two batch_norm_gather_stats_with_counts(
    const at::Tensor& /*input*/,
    const at::Tensor& means,
    const at::Tensor& invstds,
    const Optional<at::Tensor>& running_mean,
    const Optional<at::Tensor>& running_var,
    double momentum,
    double eps,
    const at::Tensor& counts) {
  const auto weights = counts.to(at::kFloat).view({-1, 1});
  const auto total = weights.sum();
  const auto mean = (means * weights).sum(0) / total;
  const auto within = (invstds.pow(-2) - eps) * weights;
  const auto between = (means - mean).pow(2) * weights;
  const auto squares = (within + between).sum(0);
  update_running(running_mean, mean, momentum);
  update_running(running_var, squares / (total - 1), momentum);
  return {mean, at::rsqrt(squares / total + eps)};
}

at::Tensor batch_norm_elemt(
    const at::Tensor& input,
    const Optional<at::Tensor>& weight,
    const Optional<at::Tensor>& bias,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    double /*eps*/) {
  const auto normalized = (input.to(at::kFloat) - broadcast_channels(mean, input)) * broadcast_channels(invstd, input);
  const auto scaled = scale_channels(normalized, weight);
  return (is_given(bias) ? scaled + broadcast_channels(*bias, input) : scaled).to(input.scalar_type());
}

Four batch_norm_backward_reduce(
    const at::Tensor& gradient,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const Optional<at::Tensor>& weight,
    bool input_needed,
    bool weight_needed,
    bool bias_needed) {
  const auto dims = reduction_dims(input);
  const auto dy = gradient.to(at::kFloat);
  const auto sum_dy = dy.sum(dims);
  const auto sum_dy_xmu = (dy * (input.to(at::kFloat) - broadcast_channels(mean, input))).sum(dims);
  const auto dtype = is_given(weight) ? weight->scalar_type() : at::kFloat;
  return {
      input_needed ? sum_dy : at::Tensor(),
      input_needed ? sum_dy_xmu : at::Tensor(),
      weight_needed ? (sum_dy_xmu * invstd).to(dtype) : at::Tensor(),
      bias_needed ? sum_dy.to(dtype) : at::Tensor()};
}

at::Tensor batch_norm_backward_elemt(
    const at::Tensor& gradient,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const Optional<at::Tensor>& weight,
    const at::Tensor& sum_dy,
    const at::Tensor& sum_dy_xmu,
    const at::Tensor& count) {
  const auto total = count.sum().to(at::kFloat);
  const auto centered = input.to(at::kFloat) - broadcast_channels(mean, input);
  const auto slope = broadcast_channels(invstd.pow(2) * sum_dy_xmu / total, input);
  const auto result = (gradient.to(at::kFloat) - broadcast_channels(sum_dy / total, input) - centered * slope) *
                      broadcast_channels(invstd, input);
  return scale_channels(result, weight).to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  for (const auto* const name :
       {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&batch_norm>());
  }
  m.impl("native_batch_norm_backward", torch::CppFunction::makeFromBoxedFunction<&batch_norm_backward>());
  m.impl("batch_norm_stats", &batch_norm_stats);
  m.impl("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats_with_counts);
  m.impl("batch_norm_elemt", &batch_norm_elemt);
  m.impl("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  m.impl("batch_norm_backward_elemt", &batch_norm_backward_elemt);
}

}  // namespace
}  // namespace hpu_sim
