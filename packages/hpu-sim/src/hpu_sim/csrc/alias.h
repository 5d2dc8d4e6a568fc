// CPU and hpu tensors over the same memory. Nothing here copies data.
#pragma once

#include "common.h"

namespace hpu_sim {

inline bool is_hpu_tensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::HPU;
}

// Returns a CPU tensor over the memory of `hpu` with its sizes, strides, dtype, and conj and neg bits, but without its
// autograd history. Throws if the storage was resized below the tensor.
at::Tensor as_cpu_alias(const at::Tensor& hpu);

// Returns a tensor of the host as it is.
inline at::Tensor as_cpu(const at::Tensor& tensor) {
  return is_hpu_tensor(tensor) ? as_cpu_alias(tensor) : tensor;
}

// Returns the hpu tensor for the result `cpu` of a CPU kernel. `storage` is the storage of an argument if the result is
// a view of it, else `wrap_cpu_storage(cpu.storage())`.
at::Tensor as_hpu_tensor(at::Tensor cpu, c10::Storage storage);

// Returns dtype and sizes for messages, such as "Float[3, 4]".
std::string describe(const at::Tensor& tensor);

// Copies sizes, strides and storage offset from the alias `cpu` to `hpu`, whose storage must hold them.
void sync_metadata(const at::Tensor& hpu, const at::Tensor& cpu);

}  // namespace hpu_sim
