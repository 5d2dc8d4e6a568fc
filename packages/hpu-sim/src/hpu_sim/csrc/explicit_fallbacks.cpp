#include "explicit_fallbacks.h"

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "cpu_fallback.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// The composite kernel of convolution selects a backend by device, for hpu `convolution_overrideable`. That of
// kaiser_window calls a kernel by device, and that of mode with outputs refuses other devices than torch's own.
bool has_device_dependent_composite(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward" || name == "aten::kaiser_window" ||
         name == "aten::mode";
}

bool has_composite_kernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

bool needs_explicit_fallback(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (!starts_with(name, "aten::") || op.hasKernelForDispatchKey(c10::DispatchKey::HPU)) {
    return false;
  }
  if (starts_with(name, "aten::_foreach_") || has_device_dependent_composite(name)) {
    return true;
  }
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && has_composite_kernel(op);
}

}  // namespace

void register_explicit_fallbacks() {
  // Never destroyed: the destructor unregisters, and torch's dispatcher may be gone at exit.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && needs_explicit_fallback(*op)) {
      library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
    }
  }
}

}  // namespace hpu_sim
