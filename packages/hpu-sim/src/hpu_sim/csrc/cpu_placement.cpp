#include "cpu_placement.h"

#include <atomic>
#include <mutex>
#include <utility>

#include <torch/library.h>

#include "counters.h"
#include "cpu_fallback.h"
#include "diagnostics.h"
#include "fork_safety.h"

namespace hpu_sim {
namespace {

std::atomic<bool> placement_allowed{true};

ForkSafeMutex& counts_mutex() {
  static auto* instance = new ForkSafeMutex();
  return *instance;
}

// Written before the first operator runs.
std::unordered_set<c10::OperatorName> operators_on_cpu;
DeviceDtypes dtypes_on_device;

std::map<std::string, int64_t>& counts() {
  static auto* instance = new std::map<std::string, int64_t>();
  return *instance;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  if (!placement_allowed.load(std::memory_order_relaxed)) {
    throw_unsupported(
        name, name, " has no kernel on the device, and PT_HPU_PLACE_ON_CPU=none forbids to run it on the CPU.");
  }
  {
    const std::lock_guard<std::mutex> lock(counts_mutex());
    ++counts()[name];
  }
  record_host_sync(name, "cpu_fallback");
  cpu_fallback(op, stack);
}

std::string base_name(const c10::OperatorName& name) {
  std::string base = name.name.substr(std::string("aten::").size());
  base.erase(base.find_last_not_of('_') + 1);
  return base;
}

bool runs_on_cpu(const c10::OperatorHandle& op, const std::unordered_set<std::string>& device_operators) {
  const auto& name = op.operator_name();
  return name.name.rfind("aten::", 0) == 0 && op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::HPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         device_operators.count(base_name(name)) == 0;
}

}  // namespace

void register_cpu_placement(const std::unordered_set<std::string>& device_operators, DeviceDtypes device_dtypes) {
  dtypes_on_device = std::move(device_dtypes);
  // Never destroyed: the destructor unregisters, and torch's dispatcher may be gone at exit.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && runs_on_cpu(*op, device_operators)) {
      const std::string overload = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      library->impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
      operators_on_cpu.insert(name);
    }
  }
}

bool has_device_kernel(const c10::OperatorHandle& op, const std::string& dtype) {
  const auto& name = op.operator_name();
  if (operators_on_cpu.count(name) != 0) {
    return false;
  }
  const std::string base = name.name.substr(name.name.rfind(':') + 1);
  const auto found = dtypes_on_device.find(name.overload_name.empty() ? base : base + "." + name.overload_name);
  return found == dtypes_on_device.end() || found->second.count(dtype) != 0;
}

void set_cpu_placement_allowed(bool allowed) {
  placement_allowed = allowed;
}

std::map<std::string, int64_t> cpu_placement_counts() {
  const std::lock_guard<std::mutex> lock(counts_mutex());
  return counts();
}

}  // namespace hpu_sim
