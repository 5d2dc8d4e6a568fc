// Device memory: host memory with the device type hpu that counts against the device's memory limit.
//
// Each hpu storage aliases a CPU storage; its DataPtr owns a reference to it. A CPU kernel can therefore run on the CPU
// storage without a copy.
//
// In strict mode, blocks are rounded as the bridge's.
#pragma once

#include "common.h"
#include "stream.h"

namespace hpu_sim {

inline const c10::Device kDevice(c10::DeviceType::HPU, 0);

// What is known of a storage of the device.
struct KnownValue {
  int64_t number = 0;     // counts storages
  bool is_known = false;  // in a plan, whether its memory has its values; see planning.h
  int8_t assumed = -1;    // 0 or 1: the value that a plan assumes of all elements
};

// Returns null for a storage over foreign memory.
KnownValue* known_value(const c10::Storage& hpu);

// Returns statistics by their names. All but the counts of calls, num_*, are in bytes. lifetime_max_in_use ignores
// resets.
std::map<std::string, int64_t> memory_stats();
void reset_peak_memory();
void reset_accumulated_memory();
inline std::atomic<int64_t> memory_limit{INT64_MAX};  // in bytes

// Starts strict mode, in which blocks count in units of the bridge's memory pool, in bytes; 0 ends it. To be called
// while the device has no blocks.
void set_strict(int64_t unit);

// `ensure_acquired` calls the callback before the first use of the device, and the callback throws if no device is
// free.
inline std::atomic<bool> is_acquired{false};
inline std::atomic<void (*)()> acquire_callback{nullptr};
void ensure_acquired();

c10::Allocator* device_allocator();

// Throws torch's OutOfMemoryError. The text starts as the bridge's does: batch size finders match it.
[[noreturn]] void throw_out_of_memory(int64_t bytes);

// The last work that uses the memory of a storage: as on the bridge, which orders by addresses, whatever uses the
// memory next, in any stream, waits for it.
StreamEvent pending_event(const c10::Storage& hpu);
void set_pending_event(const c10::Storage& hpu, const StreamEvent& event);

// If kernels run later: makes the current stream wait for the last work that uses the memory of these storages of the
// device, or launches more in it, which then is the last.
void wait_for_memory(c10::ArrayRef<c10::Storage> memory);
StreamEvent launch_on_memory(
    const char* op, c10::ArrayRef<c10::Storage> memory, std::function<void()> work, WorkKind kind = WorkKind::kKernel);

// Returns an hpu storage that aliases `cpu`. Throws torch's OutOfMemoryError beyond the memory limit.
c10::Storage wrap_cpu_storage(c10::Storage cpu);

// Counts bytes as memory of the device, with none of the host behind them, until the storage is released.
c10::Storage reserve(int64_t bytes);

// Keeps a storage as long as the memory of `hpu`, or returns whether one is kept with it.
void keep_with(const c10::Storage& hpu, c10::Storage kept);
bool has_kept(const c10::Storage& hpu);

// Returns the CPU storage that `hpu` aliases. A storage over foreign memory has none; it gets a temporary one over the
// same bytes.
c10::Storage cpu_storage(const c10::Storage& hpu);

// Updates `hpu` after its CPU storage was resized. Returns 0, or the bytes by which it has grown if they exceed the
// memory limit; `hpu` then keeps its size.
int64_t sync_after_resize(const c10::Storage& hpu) noexcept;

// Grows `hpu` to `bytes` and keeps its content. A storage never shrinks.
void grow_storage(const c10::Storage& hpu, size_t bytes);

}  // namespace hpu_sim
