#include "operators.h"

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "fallback.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Convolution decides between its algorithms by device inside a composite kernel, and would look for
// `convolution_overrideable`.
bool decides_by_device(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

bool is_decomposed(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

bool belongs_on_host(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (!starts_with(name, "aten::") || op.hasKernelForDispatchKey(c10::DispatchKey::HPU)) {
    return false;
  }
  if (starts_with(name, "aten::_foreach_") || decides_by_device(name)) {
    return true;
  }
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && is_decomposed(op);
}

}  // namespace

void register_host_kernels() {
  // Registrations last as long as this library object, which must not run its destructor while torch's own statics go.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && belongs_on_host(*op)) {
      const std::string overload = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library->impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
    }
  }
}

}  // namespace hpu_sim
