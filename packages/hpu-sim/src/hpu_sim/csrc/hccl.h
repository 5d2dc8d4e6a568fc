// The "hccl" process group backend: gloo under the bridge's rules.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hpu_sim {

c10::intrusive_ptr<c10d::Backend> make_hccl_backend(c10::intrusive_ptr<c10d::Backend> gloo);

// Registers hpu kernels for the operators of torch.distributed. To be called once.
void register_collectives();

}  // namespace hpu_sim
