#include "cpu_placement.h"

#include "cpu_fallback.h"
#include "events.h"
#include "fork_safety.h"

namespace hpu_sim {
namespace {

ForkSafeMutex& mutex = *new ForkSafeMutex();  // of the counts
std::map<std::string, int64_t>& counts = *new std::map<std::string, int64_t>();

// Written before the first operator runs.
std::unordered_set<c10::OperatorName> operators_on_cpu;
std::unordered_set<std::string> operators_on_device;
DeviceDtypes dtypes_on_device;

bool is_decomposed(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

bool runs_on_cpu(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.name.rfind("aten::", 0) == 0 && op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::HPU) && !is_decomposed(op) &&
         operators_on_device.count(base_name(name)) == 0;
}

// The composite kernel of convolution selects a backend by device, for hpu `convolution_overrideable`. That of
// kaiser_window calls a kernel by device, and that of mode with outputs refuses other devices than torch's own.
bool has_device_dependent_composite(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward" || name == "aten::kaiser_window" ||
         name == "aten::mode";
}

bool needs_explicit_fallback(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name.rfind("aten::", 0) != 0 || op.hasKernelForDispatchKey(c10::DispatchKey::HPU)) {
    return false;
  }
  if (name.rfind("aten::_foreach_", 0) == 0 || has_device_dependent_composite(name)) {
    return true;
  }
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         (is_decomposed(op) || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional));
}

}  // namespace

std::string base_name(const c10::OperatorName& name) {
  std::string base = name.name.substr(name.name.find("::") + 2);
  base.erase(base.find_last_not_of('_') + 1);
  return base;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  if (is_capturing) {
    throw_unsupported(name, "cpu fallback is not supported during hpu graph capturing: ", op.operator_name());
  }
  if (!is_cpu_placement_allowed) {
    throw_unsupported(
        name,
        op.operator_name(),
        " is not yet supported on HPU. PT_HPU_PLACE_ON_CPU does not let it run on the CPU (simulated).");
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    ++counts[name];
  }
  record_host_sync(name, "cpu_fallback");
  cpu_fallback_on_host(op, stack);
}

bool is_custom_on_cpu(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.name.rfind("aten::", 0) != 0 && operators_on_device.count(base_name(name)) == 0;
}

void register_operators(const std::unordered_set<std::string>& device_operators, DeviceDtypes device_dtypes) {
  operators_on_device = device_operators;
  dtypes_on_device = std::move(device_dtypes);
  // Never destroyed: the destructor unregisters, and torch's dispatcher may be gone at exit.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && runs_on_cpu(*op)) {
      library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
      operators_on_cpu.insert(name);
    } else if (op.has_value() && needs_explicit_fallback(*op)) {
      library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
    }
  }
}

bool has_device_kernel(const c10::OperatorHandle& op, const std::string& dtype) {
  if (operators_on_cpu.count(op.operator_name()) != 0) {
    return false;
  }
  const std::string name = c10::toString(op.operator_name());
  const auto found = dtypes_on_device.find(name.substr(name.rfind(':') + 1));
  return found == dtypes_on_device.end() || found->second.count(dtype) != 0;
}

std::map<std::string, int64_t> cpu_placement_counts() {
  const std::lock_guard<std::mutex> lock(mutex);
  return counts;
}

}  // namespace hpu_sim
