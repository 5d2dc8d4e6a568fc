// Scaled dot product attention takes the algorithm that it would take on the CPU, so that the numbers are the same.
#include "torch_compat.h"

#include <ATen/native/DispatchStub.h>

// Where torch cannot register the choice for hpu (it can on 2.9, not on 2.6), attention is always plain matrix
// products.
#ifdef REGISTER_HPU_DISPATCH

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

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
  // The function itself rather than the operator: torch.compile asks with tensors that have no memory, under a mode
  // that would take a call of the operator for one of the program's.
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace hpu_sim

namespace at::native {
REGISTER_HPU_DISPATCH(_fused_sdp_choice_stub, &hpu_sim::choose_attention)
}  // namespace at::native

#endif
