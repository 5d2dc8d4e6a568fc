// Operators that the bridge has and the CPU lacks, so that no fallback serves them.
#include <array>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/complex_native.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "alias.h"
#include "counters.h"
#include "dtypes.h"
#include "graph.h"
#include "strict.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

std::tuple<at::Tensor, at::Tensor> fused_dropout(
    const at::Tensor& self, double keep, Optional<at::Generator> generator) {
  const auto mask = at::empty_like(self, self.options().dtype(at::kByte)).bernoulli_(keep, generator);
  return {self.mul(mask).mul_(keep == 0 ? 0 : 1 / keep), mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self.mul(mask).mul_(scale);
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

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("_fused_dropout", &fused_dropout);
  m.impl("_masked_scale", &masked_scale);
  m.impl("complex", &complex);
  m.impl("linear_backward", &linear_backward);
  m.impl("_resize_output_", &resize_output);
}

}  // namespace
}  // namespace hpu_sim
