// Batch norm with parameters of low precision and float32 statistics, as DeepSpeed leaves them in its bf16 and fp16
// modes. CUDA's kernels accept that. The CPU's only accept it with float32 parameters, so they get copies of these.
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

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

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  for (const auto* const name :
       {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&batch_norm>());
  }
  m.impl("native_batch_norm_backward", torch::CppFunction::makeFromBoxedFunction<&batch_norm_backward>());
}

}  // namespace
}  // namespace hpu_sim
