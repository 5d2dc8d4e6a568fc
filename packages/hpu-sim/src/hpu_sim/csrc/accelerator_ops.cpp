// Operators that the bridge has and the CPU lacks, so that no fallback serves them, and those whose results, dtypes or
// random numbers on the bridge differ from those of the CPU.
#include <ATen/ops/complex.h>
#include <ATen/ops/complex_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_native.h>

#include "alias.h"
#include "common.h"
#include "cpu_fallback.h"
#include "dtypes.h"
#include "events.h"
#include "graph.h"
#include "strict.h"

namespace hpu_sim {
namespace {

// By the formula of the CPU's kernel of dropout, for the same numbers.
at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self.mul(mask).mul_(scale);
}

std::tuple<at::Tensor, at::Tensor> fused_dropout(
    const at::Tensor& self, double keep, Optional<at::Generator> generator) {
  const auto mask = at::empty_like(self, self.options().dtype(at::kByte)).bernoulli_(keep, generator);
  return {masked_scale(self, mask, keep == 0 ? 0 : 1 / keep), mask};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(
    const at::Tensor& self, const at::Tensor& grad, const at::Tensor& weight, std::array<bool, 3> mask) {
  const auto rows = grad.reshape({-1, grad.size(-1)});
  return {
      mask[0] ? grad.matmul(weight) : at::Tensor(),
      mask[1] ? rows.t().matmul(self.reshape({-1, self.size(-1)})) : at::Tensor(),
      mask[2] ? rows.sum(0) : at::Tensor()};
}

// The bridge has no complex dtypes. In eager mode it returns a CPU tensor.
at::Tensor complex(const at::Tensor& real, const at::Tensor& imag) {
  if (!is_strict()) {
    return at::native::complex(real, imag);
  }
  if (graph_recorder().lazy()) {
    check_dtype_on_device(at::kComplexFloat, "aten::complex");
  }
  record_host_sync("aten::complex", "cpu_fallback");
  return at::complex(real.cpu(), imag.cpu());
}

const at::Tensor& resize_output(const at::Tensor& self, c10::IntArrayRef size, c10::Device device) {
  TORCH_CHECK(
      self.device().type() == device.type(), "out must be on the device ", device, ", got a tensor on ", self.device());
  return self.resize_(size);
}

// The bridge has these for integers, by float32; mixtures of experts count tokens with a histogram.
void run_integers_in_float32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  const at::Tensor self = (*stack)[first].toTensor();
  if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    cpu_fallback(op, stack);
    return;
  }
  for (size_t i = first; i < stack->size(); ++i) {
    if ((*stack)[i].isTensor()) {
      (*stack)[i] = (*stack)[i].toTensor().to(at::kFloat);
    }
  }
  const at::Tensor wide = (*stack)[first].toTensor();
  op.callBoxed(stack);
  const at::Tensor result = torch::jit::pop(*stack).toTensor();
  torch::jit::push(*stack, is_written(arguments[0]) ? self.copy_(wide) : result.to(self.scalar_type()));
}

// In eager mode, results that are not asked for are None instead of empty.
void unique2(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t size = stack->size();
  const bool returns_inverse = (*stack)[size - 2].toBool();
  const bool returns_counts = (*stack)[size - 1].toBool();
  cpu_fallback(op, stack);
  if (graph_recorder().lazy()) {
    return;
  }
  if (!returns_inverse) {
    (*stack)[stack->size() - 2] = at::Tensor();
  }
  if (!returns_counts) {
    (*stack)[stack->size() - 1] = at::Tensor();
  }
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  // In parts, which draw from the device's generator; in one, it would draw from the CPU's default one.
  m.impl("native_dropout", &at::native::native_dropout_cpu);
  m.impl("_fused_dropout", &fused_dropout);
  m.impl("_masked_scale", &masked_scale);
  m.impl("complex", &complex);
  m.impl("linear_backward", &linear_backward);
  m.impl("_resize_output_", &resize_output);
  m.impl("_unique2", torch::CppFunction::makeFromBoxedFunction<&unique2>());
  for (const char* name : {"histc", "uniform_", "lerp.Scalar", "lerp.Tensor", "lerp_.Scalar", "lerp_.Tensor"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_integers_in_float32>());
  }
}

}  // namespace
}  // namespace hpu_sim
