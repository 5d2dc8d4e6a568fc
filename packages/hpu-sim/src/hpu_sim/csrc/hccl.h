// The "hccl" process group backend: gloo under the bridge's rules.
#pragma once

#include <memory>

#include "hccl_communicator.h"

namespace hpu_sim {

// Without a communicator, the backend is that of a plan, which exchanges nothing.
BackendPtr make_hccl_backend(int rank, int size, std::shared_ptr<Communicator> communicator);

// Waits for all process groups, as the bridge does at exit: for a barrier of the hosts of each, and for the device.
// Does not return if a rank has died.
void finish_collectives();

// Registers hpu kernels for the operators of torch.distributed. To be called once.
void register_collectives();

}  // namespace hpu_sim
