// Accelerator hooks of torch >= 2.6: generator, pinned memory and device count.
#include "common.h"
#include "guard.h"

#if HPU_SIM_TORCH >= 206

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>

#include "allocator.h"
#include "generator.h"
#include "host_allocators.h"
#include "virtual_table.h"
#endif

// Newer releases may give the hooks of CUDA a state.
#define HPU_SIM_LAST_TORCH_WITH_CUDA 215

namespace hpu_sim {
#if HPU_SIM_TORCH >= 206
namespace {

class HPUHooks final : public at::HPUHooksInterface {
 public:
  explicit HPUHooks(at::HPUHooksArgs /*args*/) {}

  void init() const override { ensure_acquired(); }
  bool hasHPU() const override { return true; }
#if HPU_SIM_TORCH >= 207
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count > 0; }
#endif
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override { check_device_index(index); }

  c10::Device getDeviceFromPtr(void* /*data*/) const override { return kDevice; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*index*/) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex /*index*/) const override { return new_generator(); }
};

// REGISTER_HPU_HOOKS accepts classes of the namespace at only.
const bool registered = [] {
  at::HPUHooksRegistry()->Register("HPUHooks", [](at::HPUHooksArgs args) -> std::unique_ptr<at::HPUHooksInterface> {
    return std::make_unique<HPUHooks>(args);
  });
  return true;
}();

}  // namespace
#endif

void disable_cuda_hooks() {
#if HPU_SIM_TORCH >= 207
  const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
  if (!cuda.isBuilt()) {
    return;
  }
  const int gpus = cuda.deviceCount();
  TORCH_CHECK(
      gpus == 0,
      "torch uses its ",
      gpus,
      " CUDA device(s) as the accelerator, and a process has one accelerator: hide them from the simulated program "
      "with "
      "CUDA_VISIBLE_DEVICES=\"\", or install torch's CPU build.");
#if HPU_SIM_TORCH <= HPU_SIM_LAST_TORCH_WITH_CUDA
  // What the hooks are in a CPU build.
  static const at::CUDAHooksInterface cpu_build;
  set_virtual_table(const_cast<at::CUDAHooksInterface&>(cuda), cpu_build);
#endif
  TORCH_CHECK(
      !at::detail::getCUDAHooks().isBuilt(),
      "torch ",
      TORCH_VERSION,
      " built for CUDA always uses CUDA as the accelerator (known to be avoidable up to torch ",
      HPU_SIM_LAST_TORCH_WITH_CUDA / 100,
      ".",
      HPU_SIM_LAST_TORCH_WITH_CUDA % 100,
      "): install torch's CPU build.");
#endif
}

}  // namespace hpu_sim
