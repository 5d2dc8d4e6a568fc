// Memory of a plan.
#pragma once

#include <c10/core/Allocator.h>

namespace hpu_sim {

// Allocator of host memory that takes no memory before it is touched; reads give zeros.
c10::Allocator* reserving_allocator();

}  // namespace hpu_sim
