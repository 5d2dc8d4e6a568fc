// CPU fallback: runs an operator without an hpu kernel on its CPU kernel, over the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace hpu_sim {

inline constexpr c10::DispatchKeySet kCpuKeys(c10::DispatchKey::CPU);

// Returns whether an operator writes to the argument.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Boxed kernel for any operator. The CPU kernel gets CPU aliases of the hpu arguments, and its results become hpu
// tensors. Nothing is copied, and the numbers equal the CPU's bit for bit.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same, for an operator that a card runs on the CPU: its arguments are read first, so that the host waits.
void cpu_fallback_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Throws torch's error for an argument of the host beside tensors of the device.
[[noreturn]] void throw_two_devices(const c10::OperatorHandle& op, const c10::Argument& argument);

}  // namespace hpu_sim
