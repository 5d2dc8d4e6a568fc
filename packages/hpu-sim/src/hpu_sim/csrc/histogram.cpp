// Histograms of integers, which the CPU's kernel does not take and those of accelerators do: mixtures of experts count
// with them how many tokens each expert gets.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/histc.h>
#include <torch/library.h>

#include "fallback.h"

namespace hpu_sim {
namespace {

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    // Exact up to 2**24; beyond it a value may be counted in the next bin.
    return at::histc(self.to(at::kFloat), bins, low, high).to(self.scalar_type());
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  torch::jit::Stack stack{self, bins, low, high};
  run_on_host(op, &stack);
  return stack.back().toTensor();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("histc", &histc);
}

}  // namespace hpu_sim
