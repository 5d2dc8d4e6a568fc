#include "allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "deferred.h"
#include "released_later.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

std::atomic<void (*)()> acquire_callback{nullptr};
std::atomic<bool> acquired{false};

struct AllocatorStats {
  std::atomic<int64_t> limit{INT64_MAX};
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> lifetime_peak{0};
  std::atomic<int64_t> num_allocs{0};
  std::atomic<int64_t> num_frees{0};
  std::atomic<int64_t> max_alloc_size{0};
};
AllocatorStats stats;

void atomic_max(std::atomic<int64_t>& maximum, int64_t value) {
  int64_t seen = maximum.load(std::memory_order_relaxed);
  while (seen < value && !maximum.compare_exchange_weak(seen, value)) {
  }
}

// Called before host memory is allocated, because the host may run out of memory where the device must.
void check_capacity(int64_t bytes) {
  if (bytes > stats.limit.load(std::memory_order_relaxed) - stats.in_use.load(std::memory_order_relaxed)) {
    throw_out_of_memory(bytes);
  }
}

// The number of allocations until one fails; see `fail_allocation`.
std::atomic<int64_t> allocations_to_failure{0};

bool is_chosen_to_fail() {
  int64_t left = allocations_to_failure.load(std::memory_order_relaxed);
  while (C10_UNLIKELY(left > 0)) {
    if (allocations_to_failure.compare_exchange_weak(left, left - 1)) {
      return left == 1;
    }
  }
  return false;
}

// Returns false, and records nothing, beyond the limit.
bool try_record_alloc(int64_t bytes) {
  if (C10_UNLIKELY(bytes > 0 && is_chosen_to_fail())) {
    return false;
  }
  const int64_t total = stats.in_use.fetch_add(bytes) + bytes;
  if (total > stats.limit.load(std::memory_order_relaxed)) {
    stats.in_use -= bytes;
    return false;
  }
  atomic_max(stats.peak, total);
  atomic_max(stats.max_alloc_size, bytes);
  ++stats.num_allocs;
  return true;
}

void record_alloc(int64_t bytes) {
  if (!try_record_alloc(bytes)) {
    throw_out_of_memory(bytes);
  }
}

void record_free(int64_t bytes) {
  stats.in_use -= bytes;
  ++stats.num_frees;
}

using CpuStoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// Deleter of every DataPtr of this allocator, which is recognized by it.
void delete_device_ptr(void* context) {
  auto cpu = CpuStoragePtr::reclaim(static_cast<c10::StorageImpl*>(context));
  record_free(static_cast<int64_t>(cpu->nbytes()));
}

bool owns(const c10::DataPtr& data) {
  return data.get_deleter() == &delete_device_ptr;
}

c10::DataPtr make_device_ptr(CpuStoragePtr cpu) {
  record_alloc(static_cast<int64_t>(cpu->nbytes()));
  void* data = mutable_bytes(*cpu);
  return c10::DataPtr(data, cpu.release(), &delete_device_ptr, kDevice);
}

CpuStoragePtr make_cpu_storage(size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, c10::GetCPUAllocator(), /*resizable=*/true);
}

class DeviceAllocator final : public AllocatorBase {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    ensure_acquired();
    released_later().release();
    check_capacity(static_cast<int64_t>(bytes));
    return make_device_ptr(make_cpu_storage(bytes));
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#endif

#ifdef HPU_SIM_ACCELERATOR_MEMORY
  bool initialized() override { return acquired; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}                               // Nothing is cached.
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}  // No work is pending.
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override { reset_accumulated_memory(); }
  void resetPeakStats(c10::DeviceIndex /*device*/) override { reset_peak_memory(); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const MemoryStats now = memory_stats();
    c10::CachingDeviceAllocator::DeviceStats result;
    for (auto* bytes : {&result.allocated_bytes, &result.active_bytes, &result.requested_bytes}) {
      (*bytes)[kAll].current = now.in_use;
      (*bytes)[kAll].peak = now.max_in_use;
    }
    // The bridge reserves all memory of the device.
    result.reserved_bytes[kAll].current = result.reserved_bytes[kAll].peak = now.limit;
    result.allocation[kAll].current = now.num_allocs - now.num_frees;
    result.allocation[kAll].allocated = now.num_allocs;
    result.allocation[kAll].freed = now.num_frees;
    return result;
  }

  // An override from torch 2.10 on.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {  // NOLINT(modernize-use-override)
    ensure_acquired();
    const MemoryStats now = memory_stats();
    return {static_cast<size_t>(now.limit - now.in_use), static_cast<size_t>(now.limit)};
  }
#endif
};

DeviceAllocator device_allocator_instance;

REGISTER_ALLOCATOR(c10::DeviceType::HPU, &device_allocator_instance);

}  // namespace

void throw_out_of_memory(int64_t bytes) {
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
      stats.in_use.load(),
      " of ",
      stats.limit.load(),
      " bytes in use.");
}

MemoryStats memory_stats() {
  released_later().release();
  MemoryStats result;
  result.limit = stats.limit;
  result.in_use = stats.in_use;
  result.max_in_use = stats.peak;
  result.lifetime_max_in_use = std::max(stats.peak.load(), stats.lifetime_peak.load());
  result.num_allocs = stats.num_allocs;
  result.num_frees = stats.num_frees;
  result.max_alloc_size = stats.max_alloc_size;
  return result;
}

void reset_peak_memory() {
  atomic_max(stats.lifetime_peak, stats.peak.load());
  stats.peak.store(stats.in_use.load());
}

void reset_accumulated_memory() {
  stats.num_allocs = 0;
  stats.num_frees = 0;
}

void set_memory_limit(int64_t bytes) {
  stats.limit = bytes;
}

int64_t fail_allocation(int64_t number) {
  return allocations_to_failure.exchange(number);
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

const void* host_address(const c10::Storage& storage) {
  return storage.data();
}

c10::Storage wrap_cpu_storage(c10::Storage cpu) {
  const size_t bytes = cpu.nbytes();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      make_device_ptr(CpuStoragePtr::reclaim(cpu.unsafeReleaseStorageImpl())),
      &device_allocator_instance,
      /*resizable=*/true);
}

c10::Storage cpu_storage(const c10::Storage& hpu) {
  const c10::DataPtr& data = hpu.data_ptr();
  if (C10_LIKELY(owns(data))) {
    return CpuStoragePtr::reclaim_copy(static_cast<c10::StorageImpl*>(data.get_context()));
  }
  auto* keep_alive = new c10::Storage(hpu);
  c10::DataPtr alias(
      data.get(),
      keep_alive,
      [](void* storage) { delete static_cast<c10::Storage*>(storage); },
      c10::Device(c10::DeviceType::CPU));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      hpu.nbytes(),
      std::move(alias),
      /*allocator=*/nullptr,
      /*resizable=*/false);
}

int64_t sync_after_resize(const c10::Storage& hpu) noexcept {
  const c10::DataPtr& data = hpu.data_ptr();
  if (!owns(data)) {
    return 0;
  }
  auto* cpu = static_cast<c10::StorageImpl*>(data.get_context());
  if (cpu->nbytes() == hpu.nbytes() && cpu->data() == data.get()) {
    return 0;
  }
  const size_t before = hpu.nbytes();
  auto* impl = hpu.unsafeGetStorageImpl();
  c10::DataPtr moved(mutable_bytes(*cpu), cpu, &delete_device_ptr, kDevice);
  c10::DataPtr old = impl->set_data_ptr(std::move(moved));
  old.release_context();  // The new DataPtr owns the reference to the CPU storage.
  const int64_t growth = static_cast<int64_t>(cpu->nbytes()) - static_cast<int64_t>(before);
  if (!try_record_alloc(growth)) {
    // The old memory is freed already, so the new DataPtr stays, with the size that the limit allows.
    cpu->set_nbytes(before);
    return growth;
  }
  ++stats.num_frees;
  impl->set_nbytes(cpu->nbytes());
  return 0;
}

void grow_storage(const c10::Storage& hpu, size_t bytes) {
  const size_t before = hpu.nbytes();
  if (bytes <= before) {
    return;
  }
  // A copy into the old memory would be lost.
  deferred_copies().run_for(hpu);
  c10::DataPtr grown = device_allocator_instance.allocate(bytes);
  if (before != 0) {
    std::memcpy(grown.get(), hpu.data(), before);
  }
  auto* impl = hpu.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(bytes);
}

}  // namespace hpu_sim
