#include "generator.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include "device_memory.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

// An hpu generator is a CPU mt19937 under another name: so is its state on the bridge.
class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(at::Generator host)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::HPU)), host_(std::move(host)) {}

  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override { host_.set_current_seed(seed); }
#if HPU_SIM_TORCH >= 201
  // It has none: its state says it all. Pickling asks for one and gives it back.
  void set_offset(uint64_t offset) override { TORCH_CHECK(offset == 0, "hpu generators have no offset, got ", offset); }
  uint64_t get_offset() const override { return 0; }
#endif
  uint64_t current_seed() const override { return host_.current_seed(); }
  uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override { host_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host_.unsafeGetGeneratorImpl()->get_state(); }

 private:
  DeviceGenerator* clone_impl() const override { return new DeviceGenerator(host_.clone()); }

  at::Generator host_;
};

}  // namespace

const at::Generator& default_generator() {
  static const at::Generator generator = new_generator();
  return generator;
}

at::Generator new_generator() {
  return at::make_generator<DeviceGenerator>(at::detail::createCPUGenerator());
}

at::Generator host_generator(const at::Generator& device) {
  return static_cast<const DeviceGenerator*>(device.unsafeGetGeneratorImpl())->host();
}

DefaultGeneratorSwap::DefaultGeneratorSwap() {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  at::Generator device = host_generator(default_generator());
  std::lock_guard<std::mutex> lock(cpu.mutex());
  saved_ = cpu.unsafeGetGeneratorImpl()->get_state();
  cpu.unsafeGetGeneratorImpl()->set_state(*device.unsafeGetGeneratorImpl()->get_state());
}

DefaultGeneratorSwap::~DefaultGeneratorSwap() {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  at::Generator device = host_generator(default_generator());
  std::lock_guard<std::mutex> lock(cpu.mutex());
  device.unsafeGetGeneratorImpl()->set_state(*cpu.unsafeGetGeneratorImpl()->get_state());
  cpu.unsafeGetGeneratorImpl()->set_state(*saved_);
}

}  // namespace hpu_sim
