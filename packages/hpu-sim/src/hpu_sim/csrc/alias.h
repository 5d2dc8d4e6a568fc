// The same memory, seen as a CPU tensor or as an hpu tensor. Nothing here copies data.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace hpu_sim {

inline bool is_device_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::HPU;
}

// A CPU tensor over the memory of `device`, with its shape, strides, dtype and its conj and neg bits. It has no
// autograd history.
at::Tensor borrow_as_cpu(const at::Tensor& device);

// The tensor that `cpu` becomes on the device. `storage` says which memory it is part of: that of an argument for a
// view, else the result of `lend_to_device(cpu.storage())`.
at::Tensor relabel_as_device(at::Tensor cpu, c10::Storage storage);

// "float32[3, 4]", for people.
std::string describe(const at::Tensor& tensor);

// After an operator that may write its arguments' metadata: repeats on `device` what happened to the CPU tensor
// borrowed from it.
void follow_alias(const at::Tensor& device, const at::Tensor& cpu);

}  // namespace hpu_sim
