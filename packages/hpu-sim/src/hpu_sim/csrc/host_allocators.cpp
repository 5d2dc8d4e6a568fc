#include "host_allocators.h"

#include <sys/mman.h>

#include <c10/core/CPUAllocator.h>

#include "fork_safety.h"

namespace hpu_sim {
namespace {

// Never destroyed: tensors in other static objects may outlive them at exit.
ForkSafeMutex& pinned_mutex = *new ForkSafeMutex(ForkOrder::kInner);
std::unordered_set<const void*>& pinned_blocks = *new std::unordered_set<const void*>();

void free_pinned(void* data) {
  {
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks.erase(data);
  }
  c10::GetCPUAllocator()->raw_deallocate(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    void* data = c10::GetCPUAllocator()->raw_allocate(bytes);
    // Empty tensors share the null pointer.
    if (data != nullptr) {
      const std::lock_guard<std::mutex> lock(pinned_mutex);
      pinned_blocks.insert(data);
    }
    return c10::DataPtr(data, data, &free_pinned, c10::Device(c10::DeviceType::CPU));
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
#endif
};

PinnedAllocator pinned_allocator_instance;

// Smaller memory is malloc's, which does not touch it either.
constexpr size_t kMappedBytes = size_t{1} << 18;

struct Mapping {
  void* data;
  size_t bytes;
};

void unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  munmap(mapping->data, mapping->bytes);
}

class ReservingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    if (bytes < kMappedBytes) {
      return c10::GetDefaultCPUAllocator()->allocate(bytes);
    }
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(data != MAP_FAILED, "the addresses of this process do not suffice for ", bytes, " more bytes");
    return {data, new Mapping{data, bytes}, &unmap, c10::Device(c10::DeviceType::CPU)};
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* /*destination*/, const void* /*source*/, size_t /*bytes*/) const override {}
#endif
};

}  // namespace

c10::Allocator* pinned_allocator() {
  return &pinned_allocator_instance;
}

bool is_pinned(const void* data) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  return pinned_blocks.count(data) != 0;
}

c10::Allocator* reserving_allocator() {
  static auto* instance = new ReservingAllocator();
  return instance;
}

}  // namespace hpu_sim
