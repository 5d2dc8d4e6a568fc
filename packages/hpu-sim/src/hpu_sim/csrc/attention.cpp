// Scaled dot product attention takes the algorithm that it would take on the CPU, so that the numbers are the same.
#include "torch_compat.h"

#include <ATen/native/DispatchStub.h>

// Where torch cannot register the choice for hpu (it can on 2.9, not on 2.6), attention is always plain matrix
// products.
#ifdef REGISTER_HPU_DISPATCH

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "alias.h"

namespace hpu_sim {
namespace {

int64_t choose_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  // The choice depends on which inputs need gradients, which a borrowed tensor does not say.
  const auto borrow = [](const at::Tensor& tensor) {
    return borrow_as_cpu(tensor).requires_grad_(tensor.requires_grad());
  };
  std::optional<at::Tensor> host_mask;
  if (mask.has_value() && mask->defined()) {
    host_mask = borrow(*mask);
  }
  return at::_fused_sdp_choice(
      borrow(query), borrow(key), borrow(value), host_mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace hpu_sim

namespace at::native {
REGISTER_HPU_DISPATCH(_fused_sdp_choice_stub, &hpu_sim::choose_attention)
}  // namespace at::native

#endif
