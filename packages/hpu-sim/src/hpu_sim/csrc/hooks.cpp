// torch >= 2.5 asks an accelerator for its generator, pinned memory and device count through these hooks.
#include "hooks.h"

#include "torch_compat.h"

#if HPU_SIM_TORCH >= 205

#include <memory>
#include <new>

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>

#include "device_memory.h"
#include "generator.h"
#include "guard.h"

namespace hpu_sim {
namespace {

class Hooks final : public at::HPUHooksInterface {
 public:
  explicit Hooks(at::HPUHooksArgs /*args*/) {}

  void init() const override { ensure_acquired(); }
  bool hasHPU() const override { return true; }
#if HPU_SIM_TORCH >= 207
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return get_device_count() > 0; }
#endif
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(get_device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override { check_index(index); }

  c10::Device getDeviceFromPtr(void* /*data*/) const override { return kDevice; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*index*/) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex /*index*/) const override { return new_generator(); }
};

// Not by REGISTER_HPU_HOOKS: the macro names the class of torch's own namespace.
const bool registered = [] {
  at::HPUHooksRegistry()->Register("HPUHooks", [](at::HPUHooksArgs args) -> std::unique_ptr<at::HPUHooksInterface> {
    return std::make_unique<Hooks>(args);
  });
  return true;
}();

}  // namespace

#if HPU_SIM_TORCH >= 207
void stand_in_for_absent_cuda() {
  auto& cuda = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (!cuda.isBuilt()) {
    return;
  }
  const int gpus = cuda.deviceCount();
  TORCH_CHECK(
      gpus == 0,
      "torch takes its ",
      gpus,
      " CUDA device(s) for the machine's accelerator, and has one accelerator per process: hide them from a simulated "
      "program with CUDA_VISIBLE_DEVICES=\"\", or use torch's CPU build.");
  // The interface itself is what torch uses where it was built without CUDA. The object in its place has no state.
  std::destroy_at(&cuda);
  new (&cuda) at::CUDAHooksInterface();
}
#else
void stand_in_for_absent_cuda() {}
#endif

}  // namespace hpu_sim

#else

namespace hpu_sim {
void stand_in_for_absent_cuda() {}
}  // namespace hpu_sim

#endif
