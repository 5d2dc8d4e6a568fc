#pragma once

namespace hpu_sim {

// Sends to the CPU's kernel each operator that torch would otherwise decompose for a device without a kernel of its
// own, so that its numbers are the CPU's to the last bit and a list of tensors costs one call. To be called once, after
// torch's operators are known.
void register_host_kernels();

}  // namespace hpu_sim
