#include "reserving_allocator.h"

#include <sys/mman.h>

#include <memory>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "torch_compat.h"

namespace hpu_sim {
namespace {

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

c10::Allocator* reserving_allocator() {
  static auto* instance = new ReservingAllocator();
  return instance;
}

}  // namespace hpu_sim
