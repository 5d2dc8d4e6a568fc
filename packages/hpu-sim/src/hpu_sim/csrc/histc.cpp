// aten::histc with integers. The CPU kernel has none, accelerators do: mixtures of experts count tokens with it.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/histc.h>
#include <torch/library.h>

#include "cpu_fallback.h"

namespace hpu_sim {
namespace {

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    // Exact up to 2**24. A larger value may be counted in the next bin.
    return at::histc(self.to(at::kFloat), bins, low, high).to(self.scalar_type());
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  torch::jit::Stack stack{self, bins, low, high};
  cpu_fallback(op, &stack);
  return stack.back().toTensor();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("histc", &histc);
}

}  // namespace hpu_sim
