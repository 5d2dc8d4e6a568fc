#pragma once

namespace hpu_sim {

// Makes a CUDA build of torch on a machine without a GPU behave as a CPU build, for the rest of the process. Throws if
// there is a GPU.
//
// From torch 2.9 on, CUDA builds report CUDA as the accelerator even with no GPU, and then reject backward passes on
// hpu.
void disable_cuda_hooks();

}  // namespace hpu_sim
