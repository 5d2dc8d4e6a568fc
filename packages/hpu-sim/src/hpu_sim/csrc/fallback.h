// How an operator without an hpu kernel of its own runs: on the CPU's kernel, over the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu_sim {

// A boxed kernel for any operator. Each hpu tensor argument is lent to the CPU's kernel, whose results become hpu
// tensors: the numbers are the CPU's to the last bit and nothing is copied.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace hpu_sim
