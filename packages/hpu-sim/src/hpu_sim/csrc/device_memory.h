// Device memory: host memory that is labelled `hpu` and charged against the card's limit.
//
// Every hpu storage lends the memory of a CPU storage, which its data pointer owns. An operator can therefore run on
// the CPU storage itself: no copy, and when the operator grows it, the growth is seen here.
#pragma once

#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace hpu_sim {

inline const c10::Device kDevice(c10::DeviceType::HPU, 0);

struct MemoryStats {
  int64_t limit = 0;  // bytes, as all of these but the counts of calls
  int64_t in_use = 0;
  int64_t max_in_use = 0;
  int64_t lifetime_max_in_use = 0;  // whatever was reset in between
  int64_t num_allocs = 0;
  int64_t num_frees = 0;
  int64_t max_alloc_size = 0;
};

MemoryStats memory_stats();
void reset_peak_memory();
void reset_accumulated_memory();
void set_memory_limit(int64_t bytes);

// Called before the first allocation of the process, to take a card as the bridge does. It throws when none is free.
void set_acquire_callback(void (*callback)());
void set_acquired(bool acquired);
void ensure_acquired();

c10::Allocator* device_allocator();

// Labels host memory as device memory and charges its size. Throws torch's OutOfMemoryError beyond the limit.
c10::Storage lend_to_device(c10::Storage host);

// The CPU storage below `device`, or one made for the call over the same bytes where `device` holds memory from
// elsewhere.
c10::Storage host_storage(const c10::Storage& device);

// Repeats on `device` the growth of the host storage below it.
void follow_host_storage(const c10::Storage& device);

// Grows (never shrinks) `device` to `bytes`, keeping its content.
void grow_storage(const c10::Storage& device, size_t bytes);

// Page-locked host memory does not exist here; the label does, because copies from it may be asynchronous on a card.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

}  // namespace hpu_sim
