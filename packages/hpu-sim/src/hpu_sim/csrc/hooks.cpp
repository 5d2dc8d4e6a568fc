// torch >= 2.5 asks an accelerator for its generator, pinned memory and device count through these hooks.
#include "torch_compat.h"

#if HPU_SIM_TORCH >= 205

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
#if HPU_SIM_TORCH >= 209
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return get_device_count() > 0; }
#endif
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(get_device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*index*/) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    TORCH_CHECK(index <= 0, "habana active device ", static_cast<int>(index), " != 0: a process has one card, hpu:0.");
  }

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
}  // namespace hpu_sim

#endif
