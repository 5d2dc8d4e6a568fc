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

#include "allocator.h"
#include "cpu_fallback.h"

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

// The CPU's fused kernel has no scores. A card, which has no such kernel, computes them by torch's math path: twice
// around the softmax, of which one stays for the backward pass, beside scaled queries and keys, and in it another two.
// They count as memory, in float32 where the math path computes in it.
struct MathPath {
  int64_t scores;  // all in bytes
  int64_t inputs;
  int64_t mask;  // made of a causal or bool one

  MathPath(
      const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const c10::IValue& given, bool causal) {
    const bool is_half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
    const auto size = is_half ? int64_t{4} : static_cast<int64_t>(query.element_size());
    const int64_t num_pairs = query.size(-2) * key.size(-2);
    scores = query.numel() / std::max<int64_t>(query.size(-1) * query.size(-2), 1) * num_pairs * size;
    inputs = (query.numel() + key.numel() + (is_half ? value.numel() : 0)) * size;
    const bool has_bool_mask = given.isTensor() && given.toTensor().scalar_type() == at::kBool;
    mask = causal ? num_pairs * (size + 1) : has_bool_mask ? given.toTensor().numel() * size : 0;
  }
};

const c10::IValue& argument(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(index.has_value(), op.schema());
  return stack[stack.size() - op.schema().arguments().size() + static_cast<size_t>(*index)];
}

MathPath math_path(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return {
      argument(op, stack, "query").toTensor(),
      argument(op, stack, "key").toTensor(),
      argument(op, stack, "value").toTensor(),
      argument(op, stack, "attn_mask"),
      argument(op, stack, "is_causal").toBool()};
}

void flash_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (is_fused_attention) {
    cpu_fallback(op, stack);
    return;
  }
  const MathPath math = math_path(op, *stack);
  const auto transient = reserve(math.scores + math.mask);
  auto kept = reserve(math.scores + math.inputs);
  cpu_fallback(op, stack);
  // With the statistics of the softmax, of which only the backward pass knows.
  keep_with(stack->back().toTensor().storage(), std::move(kept));
}

void flash_attention_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::Storage transient;
  if (has_kept(argument(op, *stack, "logsumexp").toTensor().storage())) {
    transient = reserve(2 * math_path(op, *stack).scores);
  }
  cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", torch::CppFunction::makeFromBoxedFunction<&flash_attention>());
  m.impl(
      "_scaled_dot_product_flash_attention_for_cpu_backward",
      torch::CppFunction::makeFromBoxedFunction<&flash_attention_backward>());
}

}  // namespace
}  // namespace hpu_sim

namespace at::native {
REGISTER_HPU_DISPATCH(_fused_sdp_choice_stub, &hpu_sim::choose_attention)
}  // namespace at::native

#endif
