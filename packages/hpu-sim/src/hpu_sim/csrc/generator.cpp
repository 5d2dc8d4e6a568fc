#include "generator.h"

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

#include "allocator.h"
#include "pipeline.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

// A CPU mt19937 generator with the device type hpu. The bridge has the same state.
class HPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit HPUGeneratorImpl(at::Generator cpu)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::HPU)), cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const { return cpu_; }

  void set_current_seed(uint64_t seed) override {
    pipeline().join();
    const auto lock = lock_state();
    cpu_.set_current_seed(seed);
  }
#if HPU_SIM_TORCH >= 201
  // The state has no offset. Pickling gets it and sets it again.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "hpu generators have no offset: `offset` must be 0, got ", offset);
  }
  uint64_t get_offset() const override { return 0; }
#endif
  uint64_t current_seed() const override {
    const auto lock = lock_state();
    return cpu_.current_seed();
  }
  uint64_t seed() override {
    const auto lock = lock_state();
    return cpu_.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    const auto lock = lock_state();
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto lock = lock_state();
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  HPUGeneratorImpl* clone_impl() const override {
    const auto lock = lock_state();
    return new HPUGeneratorImpl(cpu_.clone());
  }

  // Torch locks this generator, but CPU kernels draw from `cpu_` and lock that one.
  std::unique_lock<std::mutex> lock_state() const {
    return std::unique_lock<std::mutex>(cpu_.unsafeGetGeneratorImpl()->mutex_);
  }

  at::Generator cpu_;
};

}  // namespace

const at::Generator& default_generator() {
  // Never destroyed: threads of autograd may draw numbers while the process exits.
  static const auto* generator = new at::Generator(new_generator());
  return *generator;
}

at::Generator new_generator() {
  return at::make_generator<HPUGeneratorImpl>(at::detail::createCPUGenerator());
}

at::Generator cpu_generator(const at::Generator& hpu) {
  return static_cast<const HPUGeneratorImpl*>(hpu.unsafeGetGeneratorImpl())->cpu();
}

}  // namespace hpu_sim
