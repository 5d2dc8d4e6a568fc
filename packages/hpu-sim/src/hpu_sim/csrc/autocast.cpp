#include "autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "alias.h"
#include "ivalue_tensors.h"

namespace hpu_sim {
namespace {

// Norms cast their first argument only; weights and running statistics keep their dtype.
constexpr std::array<std::string_view, 4> kFirstArgOnly = {"batch_norm", "layer_norm", "group_norm", "instance_norm"};

enum class CastPolicy { kLower, kFloat32, kPromote };

at::ScalarType autocast_dtype() {
#if HPU_SIM_TORCH >= 204
  return at::autocast::get_autocast_dtype(at::kHPU);
#else
  return at::autocast::get_autocast_hpu_dtype();
#endif
}

bool is_castable(const at::Tensor& tensor) {
  return is_hpu_tensor(tensor) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble &&
         tensor.element_size() > 1;
}

class CastKernel final : public c10::OperatorKernel {
 public:
  CastKernel(CastPolicy policy, bool first_arg_only) : policy_(policy), first_arg_only_(first_arg_only) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastHPU);
    const size_t count = op.schema().arguments().size();
    auto* const first = stack->data() + (stack->size() - count);
    auto* const last = first + (first_arg_only_ ? 1 : count);
    const auto dtype = target(first, last);
    // No cache of cast weights: it is off on the bridge.
    for (auto* value = first; value != last; ++value) {
      // A cast copies, so a tensor that is written in place keeps its dtype.
      const auto* alias = op.schema().arguments()[value - first].alias_info();
      if (alias != nullptr && alias->isWrite()) {
        continue;
      }
      replace_tensors(*value, [dtype](const at::Tensor& tensor) {
        return is_castable(tensor) && tensor.scalar_type() != dtype ? tensor.to(dtype) : tensor;
      });
    }
    op.callBoxed(stack);
  }

 private:
  at::ScalarType target(c10::IValue* first, c10::IValue* last) const {
    if (policy_ == CastPolicy::kFloat32) {
      return at::kFloat;
    }
    const auto low = autocast_dtype();
    if (policy_ == CastPolicy::kLower) {
      return low;
    }
    auto widest = low;
    for (auto* value = first; value != last; ++value) {
      replace_tensors(*value, [&widest](const at::Tensor& tensor) {
        // float16 and bfloat16 promote to float32.
        if (is_castable(tensor) && tensor.scalar_type() != widest) {
          widest = at::kFloat;
        }
        return tensor;
      });
    }
    return widest;
  }

  CastPolicy policy_;
  bool first_arg_only_;
};

bool has_out_argument(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) { return argument.is_out(); });
}

}  // namespace

std::set<std::string> register_autocast(const std::map<std::string, std::string>& policies) {
  static const std::map<std::string, CastPolicy> known = {
      {"lower", CastPolicy::kLower}, {"fp32", CastPolicy::kFloat32}, {"promote", CastPolicy::kPromote}};
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastHPU, __FILE__, __LINE__);
  std::set<std::string> missing;
  for (const auto& [name, policy] : policies) {
    TORCH_CHECK_VALUE(known.count(policy) != 0, "`policy` must be lower, fp32 or promote, got ", policy);
    missing.insert(name);
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  // Once for all operators: torch copies its thousands of names.
  for (const auto& candidate : dispatcher.getAllOpNames()) {
    const std::string name = candidate.name.rfind("aten::", 0) == 0 ? candidate.name.substr(6) : "";
    const auto listed = policies.find(name);
    const auto op = dispatcher.findOp(candidate);
    if (listed == policies.end() || !op.has_value() || has_out_argument(*op)) {
      continue;
    }
    missing.erase(name);
    const bool first_arg_only = std::find(kFirstArgOnly.begin(), kFirstArgOnly.end(), name) != kFirstArgOnly.end();
    library->impl(
        c10::toString(candidate).c_str(),
        torch::CppFunction::makeFromBoxedKernel(
            c10::BoxedKernel::makeFromFunctor(std::make_unique<CastKernel>(known.at(listed->second), first_arg_only))));
  }
  return missing;
}

TORCH_LIBRARY_IMPL(_, AutocastHPU, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace hpu_sim
