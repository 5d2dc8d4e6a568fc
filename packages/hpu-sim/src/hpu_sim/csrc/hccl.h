// Collectives over "hccl": the device's only process group backend, carried by gloo between the processes of a machine.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hpu_sim {

c10::intrusive_ptr<c10d::Backend> make_hccl_backend(c10::intrusive_ptr<c10d::Backend> gloo);

// Gives the operators of torch.distributed an hpu kernel. To be called once.
void register_collectives();

}  // namespace hpu_sim
