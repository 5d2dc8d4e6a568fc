// Choice of the scaled dot product attention algorithm: the CPU's, for the same numbers. In strict mode the bridge's,
// which has no fused kernel but that of FusedSDPA.
#include "common.h"
#include "strict.h"

#include <ATen/native/DispatchStub.h>

// Present in torch 2.9, absent in 2.6. Without it, attention always takes the math path.
#ifdef REGISTER_HPU_DISPATCH

#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
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
  if (is_strict() && !is_fused_attention) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  // Not the operator: torch.compile calls this with fake tensors, under a mode that would trace the operator.
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

}  // namespace
}  // namespace hpu_sim

namespace at::native {
REGISTER_HPU_DISPATCH(_fused_sdp_choice_stub, &hpu_sim::choose_attention)
}  // namespace at::native

#endif
