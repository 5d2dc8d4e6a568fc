// The "hccl" process group backend: gloo under the bridge's rules.
#pragma once

#include <memory>

#include "hccl_communicator.h"

#include "hccl_tensors.h"

namespace hpu_sim {

BackendPtr make_hccl_backend(int rank, int size, std::shared_ptr<Communicator> communicator);

// Waits for all process groups, as the bridge does at exit: for a barrier of the hosts of each, and for the device.
// Does not return if a rank has died.
void finish_collectives();

// Counts a collective whose caller contributes `payload`. The graph ends.
void record_collective(const char* name, const Tensors& payload);

// Registers hpu kernels for the operators of torch.distributed. To be called once.
void register_collectives();

}  // namespace hpu_sim
