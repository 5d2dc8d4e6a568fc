// Pinned host memory. The memory is ordinary; the allocator only remembers which blocks it gave out, because on a card
// copies from and to pinned memory may be asynchronous.
#pragma once

#include <c10/core/Allocator.h>

namespace hpu_sim {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

}  // namespace hpu_sim
