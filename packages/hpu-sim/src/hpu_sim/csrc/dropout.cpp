// aten::native_dropout. Its CPU kernel takes no generator and would draw from the CPU's default one.
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include "torch_compat.h"

namespace hpu_sim {
namespace {

// The CPU kernel's formula, for the same numbers. `bernoulli_` draws from the device's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, Optional<bool> train) {
  const auto mask_options = input.options().dtype(at::kBool);
  if (input.numel() == 0) {
    return {input, at::empty_like(input)};
  }
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  const double keep = 1 - p;
  const auto mask = at::empty_like(input, mask_options).bernoulli_(keep);
  return {input.mul(mask).mul_(keep == 0 ? 0 : 1 / keep), mask};
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("native_dropout", &native_dropout);
}

}  // namespace
}  // namespace hpu_sim
