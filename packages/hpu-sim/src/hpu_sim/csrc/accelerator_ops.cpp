// Operators that the bridge has and the CPU lacks, so that no fallback serves them, and those whose results, dtypes or
// random numbers on the bridge differ from those of the CPU.
#include <ATen/ops/native_dropout_native.h>

#include "common.h"
#include "cpu_fallback.h"

namespace hpu_sim {
namespace {

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

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  // In parts, which draw from the device's generator; in one, it would draw from the CPU's default one.
  m.impl("native_dropout", &at::native::native_dropout_cpu);
  m.impl("_resize_output_", &resize_output);
  for (const char* name : {"histc", "uniform_", "lerp.Scalar", "lerp.Tensor", "lerp_.Scalar", "lerp_.Tensor"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_integers_in_float32>());
  }
}

}  // namespace
}  // namespace hpu_sim
