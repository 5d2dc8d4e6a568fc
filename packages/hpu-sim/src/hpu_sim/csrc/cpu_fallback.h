// CPU fallback: runs an operator without an hpu kernel on its CPU kernel, over the same memory.
#pragma once

#include "common.h"

namespace hpu_sim {

inline constexpr c10::DispatchKeySet kCpuKeys(c10::DispatchKey::CPU);

// Returns whether an operator writes to the argument.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// As on every accelerator, index tensors and packed lengths may be CPU tensors beside hpu data.
inline bool allows_cpu_tensor(const c10::Argument& argument) {
  return argument.name() == "indices" || argument.name() == "lengths";
}

inline bool is_advanced_index(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::index" || name == "aten::_unsafe_index";
}

inline bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

// Boxed kernel for any operator. The CPU kernel gets CPU aliases of the hpu arguments, and its results become hpu
// tensors. Nothing is copied, and the numbers equal the CPU's bit for bit.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same, for an operator that a card runs on the CPU: its arguments are read first, so that the host waits.
void cpu_fallback_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Throws torch's error for an argument of the host beside tensors of the device.
[[noreturn]] void throw_two_devices(const c10::OperatorHandle& op, const c10::Argument& argument);

}  // namespace hpu_sim
