#include "device_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "torch_compat.h"

namespace hpu_sim {
namespace {

std::atomic<void (*)()> acquire_callback{nullptr};
std::atomic<bool> acquired{false};

struct Ledger {
  std::atomic<int64_t> limit{INT64_MAX};
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> peak_before_resets{0};
  std::atomic<int64_t> allocs{0};
  std::atomic<int64_t> frees{0};
  std::atomic<int64_t> largest{0};
};
Ledger ledger;

void raise_to(std::atomic<int64_t>& maximum, int64_t value) {
  int64_t seen = maximum.load(std::memory_order_relaxed);
  while (seen < value && !maximum.compare_exchange_weak(seen, value)) {
  }
}

// Begins with the bridge's own words, by which programs that search for a batch size know this error.
[[noreturn]] void throw_out_of_memory(int64_t bytes) {
  constexpr double kBytesPerMB = 1 << 20;
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::",
      bytes,
      " (",
      static_cast<double>(bytes) / kBytesPerMB,
      ")MB. HPU out of memory (simulated): tried to allocate ",
      bytes,
      " bytes with ",
      ledger.in_use.load(),
      " of ",
      ledger.limit.load(),
      " bytes in use.");
}

// Before host memory is asked for: the host may not have what the card would refuse anyway.
void check_room(int64_t bytes) {
  if (bytes > ledger.limit.load(std::memory_order_relaxed) - ledger.in_use.load(std::memory_order_relaxed)) {
    throw_out_of_memory(bytes);
  }
}

void charge(int64_t bytes) {
  const int64_t total = ledger.in_use.fetch_add(bytes) + bytes;
  if (total > ledger.limit.load(std::memory_order_relaxed)) {
    ledger.in_use -= bytes;
    throw_out_of_memory(bytes);
  }
  raise_to(ledger.peak, total);
  raise_to(ledger.largest, bytes);
  ++ledger.allocs;
}

void discharge(int64_t bytes) {
  ledger.in_use -= bytes;
  ++ledger.frees;
}

using HostPtr = c10::intrusive_ptr<c10::StorageImpl>;

// Deleter of every device data pointer; its address also tells our memory from foreign memory.
void return_to_host(void* context) {
  auto host = HostPtr::reclaim(static_cast<c10::StorageImpl*>(context));
  discharge(static_cast<int64_t>(host->nbytes()));
}

bool is_lent(const c10::DataPtr& data) {
  return data.get_deleter() == &return_to_host;
}

c10::DataPtr lend(HostPtr host) {
  charge(static_cast<int64_t>(host->nbytes()));
  void* data = mutable_bytes(*host);
  return c10::DataPtr(data, host.release(), &return_to_host, kDevice);
}

HostPtr new_host_storage(size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, c10::GetCPUAllocator(), /*resizable=*/true);
}

class DeviceAllocator final : public AllocatorBase {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    ensure_acquired();
    check_room(static_cast<int64_t>(bytes));
    return lend(new_host_storage(bytes));
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#endif

#ifdef HPU_SIM_ACCELERATOR_MEMORY
  bool initialized() override { return acquired; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}  // Nothing is kept that is not in use.
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}  // Nothing is ever pending.
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override { reset_accumulated_memory(); }
  void resetPeakStats(c10::DeviceIndex /*device*/) override { reset_peak_memory(); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const MemoryStats now = memory_stats();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*bytes)[kAll].current = now.in_use;
      (*bytes)[kAll].peak = now.max_in_use;
    }
    // As the bridge has it, all of a card is reserved.
    stats.reserved_bytes[kAll].current = stats.reserved_bytes[kAll].peak = now.limit;
    stats.allocation[kAll].current = now.num_allocs - now.num_frees;
    stats.allocation[kAll].allocated = now.num_allocs;
    stats.allocation[kAll].freed = now.num_frees;
    return stats;
  }

  // No override before torch 2.10, which does not ask.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {  // NOLINT(modernize-use-override)
    ensure_acquired();
    const MemoryStats now = memory_stats();
    return {static_cast<size_t>(now.limit - now.in_use), static_cast<size_t>(now.limit)};
  }
#endif
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override;

#if HPU_SIM_TORCH >= 203
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#endif
};

std::mutex pinned_mutex;
std::unordered_set<const void*>& pinned_blocks() {
  // Never destroyed: tensors of other static objects may outlive it at exit.
  static auto* blocks = new std::unordered_set<const void*>();
  return *blocks;
}

void free_pinned(void* data) {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks().erase(data);
  }
  c10::GetCPUAllocator()->raw_deallocate(data);
}

c10::DataPtr PinnedAllocator::allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST {
  void* data = c10::GetCPUAllocator()->raw_allocate(bytes);
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks().insert(data);
  }
  return c10::DataPtr(data, data, &free_pinned, c10::Device(c10::DeviceType::CPU));
}

DeviceAllocator device_allocator_instance;
PinnedAllocator pinned_allocator_instance;

REGISTER_ALLOCATOR(c10::DeviceType::HPU, &device_allocator_instance);

}  // namespace

MemoryStats memory_stats() {
  MemoryStats stats;
  stats.limit = ledger.limit;
  stats.in_use = ledger.in_use;
  stats.max_in_use = ledger.peak;
  stats.lifetime_max_in_use = std::max(ledger.peak.load(), ledger.peak_before_resets.load());
  stats.num_allocs = ledger.allocs;
  stats.num_frees = ledger.frees;
  stats.max_alloc_size = ledger.largest;
  return stats;
}

void reset_peak_memory() {
  raise_to(ledger.peak_before_resets, ledger.peak.load());
  ledger.peak.store(ledger.in_use.load());
}

void reset_accumulated_memory() {
  ledger.allocs = 0;
  ledger.frees = 0;
}

void set_memory_limit(int64_t bytes) {
  ledger.limit = bytes;
}

void set_acquire_callback(void (*callback)()) {
  acquire_callback = callback;
}

void set_acquired(bool value) {
  acquired = value;
}

void ensure_acquired() {
  if (C10_UNLIKELY(!acquired.load(std::memory_order_relaxed))) {
    if (auto* callback = acquire_callback.load()) {
      callback();
    }
  }
}

c10::Allocator* device_allocator() {
  return &device_allocator_instance;
}

c10::Storage lend_to_device(c10::Storage host) {
  const size_t bytes = host.nbytes();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      lend(HostPtr::reclaim(host.unsafeReleaseStorageImpl())),
      &device_allocator_instance,
      /*resizable=*/true);
}

c10::Storage host_storage(const c10::Storage& device) {
  const c10::DataPtr& data = device.data_ptr();
  if (C10_LIKELY(is_lent(data))) {
    return HostPtr::reclaim_copy(static_cast<c10::StorageImpl*>(data.get_context()));
  }
  auto* keep_alive = new c10::Storage(device);
  c10::DataPtr alias(
      data.get(),
      keep_alive,
      [](void* storage) { delete static_cast<c10::Storage*>(storage); },
      c10::Device(c10::DeviceType::CPU));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      device.nbytes(),
      std::move(alias),
      /*allocator=*/nullptr,
      /*resizable=*/false);
}

void follow_host_storage(const c10::Storage& device) {
  const c10::DataPtr& data = device.data_ptr();
  if (!is_lent(data)) {
    return;
  }
  auto* host = static_cast<c10::StorageImpl*>(data.get_context());
  if (host->nbytes() == device.nbytes() && host->data() == data.get()) {
    return;
  }
  const size_t before = device.nbytes();
  auto* impl = device.unsafeGetStorageImpl();
  c10::DataPtr moved(mutable_bytes(*host), host, &return_to_host, kDevice);
  c10::DataPtr old = impl->set_data_ptr(std::move(moved));
  old.release_context();  // The reference to the host storage has moved to the new pointer.
  try {
    charge(static_cast<int64_t>(host->nbytes()) - static_cast<int64_t>(before));
  } catch (...) {
    // The pointer has to be the new one, since the old memory is gone; the size that was never granted is taken back.
    host->set_nbytes(before);
    throw;
  }
  impl->set_nbytes(host->nbytes());
}

void grow_storage(const c10::Storage& device, size_t bytes) {
  const size_t before = device.nbytes();
  if (bytes <= before) {
    return;
  }
  c10::DataPtr grown = device_allocator_instance.allocate(bytes);
  if (before != 0) {
    std::memcpy(grown.get(), device.data(), before);
  }
  auto* impl = device.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(bytes);
}

c10::Allocator* pinned_allocator() {
  return &pinned_allocator_instance;
}

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  return pinned_blocks().count(data) != 0;
}

}  // namespace hpu_sim
