// Kernels that never run: a plan. An operator has its results, by its Meta kernel, and no numbers. Memory is reserved
// and not touched. Everything else (views, copies, graphs, counters, autograd) is that of the device.
//
// - A small tensor that the host wrote, and what is computed from single elements of this kind alone, has its values:
//   frameworks compare lengths and flags over ranks. Every other element is made up when it is read; see
//   `read_element`.
// - A large tensor that the program makes on the host, where `set_planning`'s callback says so, has no memory either.
//   Its device is the CPU, and its dispatch key the device's, so that no kernel of the CPU runs on it.
#pragma once

#include "common.h"

namespace hpu_sim {

// Starts or ends the mode. `is_reserved_on_host` decides whether a large CPU tensor that is being made has no memory.
void set_planning(bool enabled, std::function<bool()> is_reserved_on_host);

// Returns whether a tensor on the CPU has no memory; see above.
bool is_reserved_on_host(const at::Tensor& tensor);

// Returns whether the elements of a tensor are more than made up.
bool has_values(const at::Tensor& tensor);

// Runs `op` on tensors without data. Returns false, and leaves the arguments, for a call whose arguments all have
// values, and whose kernel is to run.
bool plan_call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Says that results of a call have values.
void note_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

at::Tensor& copy_without_data(at::Tensor& target, const at::Tensor& source);

// Returns the value of a single element: False, 1 or 1.0 where none is known, which neither skips a step nor divides by
// zero.
at::Scalar read_element(const at::Tensor& tensor);

// Has reads of a tensor, and of what is selected or reduced from it by `all`, `any` or a copy, return a value.
void assume(const at::Tensor& tensor, bool value);

}  // namespace hpu_sim
