// A process group of any size in one process, whose collectives exchange nothing; for plans.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace hpu_sim {

// Returns the backend of a rank. Tensors with values get those of a group whose ranks all contribute the same.
c10::intrusive_ptr<c10d::Backend> make_never_backend(int rank, int size);

}  // namespace hpu_sim
