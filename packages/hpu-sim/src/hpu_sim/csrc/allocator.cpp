#include "allocator.h"

#include <c10/core/CPUAllocator.h>

#include "events.h"
#include "execution.h"
#include "fork_safety.h"
#include "host_allocators.h"
#include "released_later.h"
#include "strict.h"

namespace hpu_sim {
namespace {

struct AllocatorStats {
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

bool exceeds_limit(int64_t bytes) {
  return !is_planning() &&
         bytes > memory_limit.load(std::memory_order_relaxed) - stats.in_use.load(std::memory_order_relaxed);
}

int64_t memory_unit = 0;  // of strict mode; written while the device has no blocks

// Returns what the memory of a block counts as. Small ones are in a block that the bridge has from the start.
int64_t charge_of(int64_t bytes) {
  if (!is_strict()) {
    return bytes;
  }
  return bytes < 2 * memory_unit ? 0 : (bytes + memory_unit - 1) / memory_unit * memory_unit;
}

// Returns what counts; none, and records nothing, beyond the limit.
std::optional<int64_t> try_record_alloc(int64_t bytes) {
  const int64_t charge = charge_of(bytes);
  if (exceeds_limit(charge)) {
    return std::nullopt;
  }
  atomic_max(stats.peak, stats.in_use.fetch_add(charge) + charge);
  atomic_max(stats.max_alloc_size, bytes);
  ++stats.num_allocs;
  return charge;
}

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// Context of every DataPtr of this allocator.
struct DeviceBlock {
  StoragePtr cpu;
  int64_t charge = 0;
  std::atomic<bool> is_pending{false};
  StreamEvent pending;
  c10::Storage kept;
  std::mutex mutex;  // of `pending`
  KnownValue value;

  // Throws torch's OutOfMemoryError beyond the memory limit.
  explicit DeviceBlock(StoragePtr storage) : cpu(std::move(storage)) {
    static std::atomic<int64_t> count{0};
    value.number = ++count;
    const auto found = try_record_alloc(bytes());
    if (!found.has_value()) {
      if (execution_mode() == ExecutionMode::kLater) {
        wait_for_device(/*keeps_gil=*/false);  // As a card does before it gives up: for ever, if the device hangs.
      }
      throw_out_of_memory(bytes());
    }
    charge = *found;
    record_memory(value.number, charge);
  }

  int64_t bytes() const { return static_cast<int64_t>(cpu->nbytes()); }

  void release() {
    stats.in_use -= charge;
    ++stats.num_frees;
    record_memory(value.number, -charge);
  }
};

// Deleter of every DataPtr of this allocator, which is recognized by it.
void delete_device_block(void* context) {
  auto* block = static_cast<DeviceBlock*>(context);
  block->release();
  delete block;
}

DeviceBlock& block_of(const c10::DataPtr& data) {
  return *static_cast<DeviceBlock*>(data.get_context());
}

// Returns null for a storage over foreign memory.
DeviceBlock* find_block(const c10::Storage& hpu) {
  const c10::DataPtr& data = hpu.data_ptr();
  return C10_LIKELY(data.get_deleter() == &delete_device_block) ? &block_of(data) : nullptr;
}

c10::DataPtr make_device_ptr(StoragePtr cpu) {
  void* data = mutable_bytes(*cpu);
  return {data, new DeviceBlock(std::move(cpu)), &delete_device_block, kDevice};
}

// Returns a storage over given memory. Without an allocator, it cannot be resized.
StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/allocator != nullptr);
}

StoragePtr make_cpu_storage(size_t bytes) {
  auto* allocator = is_planning() ? reserving_allocator() : c10::GetCPUAllocator();
  return make_storage(bytes, allocator->allocate(bytes), allocator);
}

class DeviceAllocator final : public AllocatorBase {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    ensure_acquired();
    destroy_released();
    if (exceeds_limit(static_cast<int64_t>(bytes))) {
      throw_out_of_memory(static_cast<int64_t>(bytes));  // Before the host runs out of memory.
    }
    return make_device_ptr(make_cpu_storage(bytes));
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    if (!is_planning()) {
      std::memcpy(destination, source, bytes);
    }
  }
#endif

#ifdef HPU_SIM_ACCELERATOR_MEMORY
  bool initialized() override { return is_acquired; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}                               // Nothing is cached.
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}  // No work is pending.
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override { reset_accumulated_memory(); }
  void resetPeakStats(c10::DeviceIndex /*device*/) override { reset_peak_memory(); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    auto now = memory_stats();
    c10::CachingDeviceAllocator::DeviceStats result;
    for (auto* bytes : {&result.allocated_bytes, &result.active_bytes, &result.requested_bytes}) {
      (*bytes)[kAll].current = now["in_use"];
      (*bytes)[kAll].peak = now["max_in_use"];
    }
    // The bridge reserves all memory of the device.
    result.reserved_bytes[kAll].current = result.reserved_bytes[kAll].peak = now["limit"];
    result.allocation[kAll].current = now["num_allocs"] - now["num_frees"];
    result.allocation[kAll].allocated = now["num_allocs"];
    result.allocation[kAll].freed = now["num_frees"];
    return result;
  }

  // An override from torch 2.10 on.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) {  // NOLINT(modernize-use-override)
    ensure_acquired();
    return {static_cast<size_t>(memory_limit - stats.in_use), static_cast<size_t>(memory_limit)};
  }
#endif
};

DeviceAllocator device_allocator_instance;

REGISTER_ALLOCATOR(c10::DeviceType::HPU, &device_allocator_instance);

c10::Storage wrap_device_ptr(c10::DataPtr data) {
  const size_t bytes = block_of(data).cpu->nbytes();
  return make_storage(bytes, std::move(data), &device_allocator_instance);
}

}  // namespace

void throw_out_of_memory(int64_t bytes) {
  constexpr double kBytesPerMB = 1 << 20;
  const char* rank = std::getenv("RANK");
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "[Rank:",
      rank == nullptr ? "0" : rank,
      "] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::",
      bytes,
      " (",
      static_cast<double>(bytes) / kBytesPerMB,
      ")MB. HPU out of memory (simulated): tried to allocate ",
      bytes,
      " bytes with ",
      stats.in_use.load(),
      " of ",
      memory_limit.load(),
      " bytes in use.");
}

std::map<std::string, int64_t> memory_stats() {
  destroy_released();
  return {
      {"limit", memory_limit},
      {"in_use", stats.in_use},
      {"max_in_use", stats.peak},
      {"lifetime_max_in_use", std::max(stats.peak.load(), stats.lifetime_peak.load())},
      {"num_allocs", stats.num_allocs},
      {"num_frees", stats.num_frees},
      {"max_alloc_size", stats.max_alloc_size},
  };
}

void reset_peak_memory() {
  atomic_max(stats.lifetime_peak, stats.peak.load());
  stats.peak.store(stats.in_use.load());
}

void reset_accumulated_memory() {
  stats.num_allocs = 0;
  stats.num_frees = 0;
}

void set_strict(int64_t unit) {
  memory_unit = unit;
  strict_enabled = unit != 0;
}

void ensure_acquired() {
  if (C10_UNLIKELY(!is_acquired.load(std::memory_order_relaxed))) {
    if (auto* callback = acquire_callback.load()) {
      callback();
    }
  }
}

c10::Allocator* device_allocator() {
  return &device_allocator_instance;
}

StreamEvent pending_event(const c10::Storage& hpu) {
  auto* block = find_block(hpu);
  if (block == nullptr || !block->is_pending.load(std::memory_order_acquire)) {
    return {};
  }
  const std::lock_guard<std::mutex> lock(block->mutex);
  return block->pending.is_reached() ? StreamEvent{} : block->pending;
}

void set_pending_event(const c10::Storage& hpu, const StreamEvent& event) {
  if (auto* block = find_block(hpu)) {
    const std::lock_guard<std::mutex> lock(block->mutex);
    block->pending = event;
    block->is_pending = true;
  }
}

void wait_for_memory(c10::ArrayRef<c10::Storage> memory) {
  if (execution_mode() == ExecutionMode::kLater) {
    const auto stream = current_stream();
    for (const auto& storage : memory) {
      stream->wait_for(pending_event(storage));
    }
  }
}

StreamEvent launch_on_memory(
    const char* op, c10::ArrayRef<c10::Storage> memory, std::function<void()> work, WorkKind kind) {
  wait_for_memory(memory);
  const auto event = current_stream()->push(op, std::move(work), kind);
  for (const auto& storage : memory) {
    set_pending_event(storage, event);
  }
  if (C10_UNLIKELY(is_blocking)) {
    wait_on_host(event);
    join_pipeline();
  }
  return event;
}

KnownValue* known_value(const c10::Storage& hpu) {
  auto* block = find_block(hpu);
  return block == nullptr ? nullptr : &block->value;
}

c10::Storage wrap_cpu_storage(c10::Storage cpu) {
  return wrap_device_ptr(make_device_ptr(StoragePtr::reclaim(cpu.unsafeReleaseStorageImpl())));
}

c10::Storage reserve(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  return wrap_cpu_storage(make_storage(size, reserving_allocator()->allocate(size), nullptr));
}

void keep_with(const c10::Storage& hpu, c10::Storage kept) {
  if (auto* block = find_block(hpu)) {
    block->kept = std::move(kept);
  }
}

bool has_kept(const c10::Storage& hpu) {
  const auto* block = find_block(hpu);
  return block != nullptr && block->kept;
}

c10::Storage cpu_storage(const c10::Storage& hpu) {
  if (const auto* block = find_block(hpu)) {
    return block->cpu;
  }
  auto* keep_alive = new c10::Storage(hpu);
  c10::DataPtr alias(
      const_cast<void*>(hpu.data()),
      keep_alive,
      [](void* storage) { delete static_cast<c10::Storage*>(storage); },
      c10::Device(c10::DeviceType::CPU));
  return make_storage(hpu.nbytes(), std::move(alias), nullptr);
}

int64_t sync_after_resize(const c10::Storage& hpu) noexcept {
  auto* found = find_block(hpu);
  if (found == nullptr) {
    return 0;
  }
  DeviceBlock& block = *found;
  auto* cpu = block.cpu.get();
  if (cpu->nbytes() == hpu.nbytes() && cpu->data() == hpu.data()) {
    return 0;
  }
  const size_t before = hpu.nbytes();
  auto* impl = hpu.unsafeGetStorageImpl();
  c10::DataPtr moved(mutable_bytes(*cpu), &block, &delete_device_block, kDevice);
  c10::DataPtr old = impl->set_data_ptr(std::move(moved));
  old.release_context();  // The new DataPtr owns the block.
  const int64_t charge = block.charge;
  stats.in_use -= charge;
  const auto grown = try_record_alloc(block.bytes());
  if (!grown.has_value()) {
    // The old memory is freed already, so the new DataPtr stays, with the size that the limit allows.
    const int64_t growth = static_cast<int64_t>(cpu->nbytes() - before);
    cpu->set_nbytes(before);
    block.charge = charge_of(block.bytes());
    stats.in_use += block.charge;
    return growth;
  }
  block.charge = *grown;
  record_memory(block.value.number, *grown - charge);
  ++stats.num_frees;
  impl->set_nbytes(cpu->nbytes());
  return 0;
}

void grow_storage(const c10::Storage& hpu, size_t bytes) {
  const size_t before = hpu.nbytes();
  if (bytes <= before) {
    return;
  }
  c10::DataPtr grown = device_allocator_instance.allocate(bytes);
  if (before != 0) {
    const auto copy = [from = cpu_storage(hpu), to = c10::Storage(block_of(grown).cpu), before] {
      std::memcpy(to.unsafeGetStorageImpl()->data_ptr().get(), from.data_ptr().get(), before);
    };
    if (execution_mode() == ExecutionMode::kLater) {
      const auto stream = current_stream();
      stream->wait_for(pending_event(hpu));
      block_of(grown).pending = stream->push("aten::resize_", copy);
      block_of(grown).is_pending = true;
    } else if (!is_planning()) {
      copy();
    }
  }
  auto* impl = hpu.unsafeGetStorageImpl();
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(bytes);
}

}  // namespace hpu_sim
