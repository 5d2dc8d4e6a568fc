// Allocators of host memory.
#pragma once

#include "common.h"

namespace hpu_sim {

// Pinned memory, which is ordinary: the allocator only remembers which blocks it gave out, because on a card copies
// from and to pinned memory may be asynchronous.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

// Memory of a plan, which takes none before it is touched; reads give zeros.
c10::Allocator* reserving_allocator();

}  // namespace hpu_sim
