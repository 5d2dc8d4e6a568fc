#pragma once

namespace hpu_sim {

// A torch built for CUDA takes that for the machine's accelerator even where there is no GPU (from torch 2.9 on), and
// then refuses backward passes on any other. This makes it a torch without CUDA for the rest of the process, which it
// is in all but name there. Throws where there are GPUs: the program may want them.
void stand_in_for_absent_cuda();

}  // namespace hpu_sim
