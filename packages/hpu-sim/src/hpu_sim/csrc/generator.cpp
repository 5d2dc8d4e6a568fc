#include "generator.h"

#include "common.h"

#include <ATen/CPUGeneratorImpl.h>

#include "allocator.h"

namespace hpu_sim {
namespace {

// A CPU mt19937 generator with the device type hpu. The bridge has the same state.
//
// Work that runs later draws from the CPU generator of its launch. A new seed or state therefore is one of a new CPU
// generator, and reading the state waits for that work.
class HPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit HPUGeneratorImpl(at::Generator cpu)
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::HPU)), cpu_(std::move(cpu)) {}

  at::Generator cpu() const {
    const std::lock_guard<std::mutex> lock(cpu_mutex_);
    return cpu_;
  }

  StreamEvent last_draw() const {
    const std::lock_guard<std::mutex> lock(cpu_mutex_);
    return last_draw_;
  }

  void set_last_draw(const StreamEvent& event) {
    const std::lock_guard<std::mutex> lock(cpu_mutex_);
    last_draw_ = event;
  }

  void set_current_seed(uint64_t seed) override {
    join_pipeline();
    renew().set_current_seed(seed);
  }
#if HPU_SIM_TORCH >= 201
  // The state has no offset. Pickling gets it and sets it again.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "hpu generators have no offset: `offset` must be 0, got ", offset);
  }
  uint64_t get_offset() const override { return 0; }
#endif
  uint64_t current_seed() const override {
    auto cpu_generator = cpu();
    const std::lock_guard<std::mutex> lock(cpu_generator.mutex());
    return cpu_generator.current_seed();
  }
  uint64_t seed() override { return renew().seed(); }
  void set_state(const c10::TensorImpl& state) override { renew().unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto cpu = drawn();
    const std::lock_guard<std::mutex> lock(cpu.mutex());
    return cpu.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  HPUGeneratorImpl* clone_impl() const override {
    auto cpu = drawn();
    const std::lock_guard<std::mutex> lock(cpu.mutex());
    return new HPUGeneratorImpl(cpu.clone());
  }

  at::Generator renew() {
    const std::lock_guard<std::mutex> lock(cpu_mutex_);
    cpu_ = at::detail::createCPUGenerator();
    last_draw_ = {};
    return cpu_;
  }

  // Returns the CPU generator after all draws.
  at::Generator drawn() const {
    wait_on_host(last_draw());
    return cpu();
  }

  // Torch locks this generator, but CPU kernels draw from `cpu_` and lock that one.
  mutable std::mutex cpu_mutex_;  // of the members below
  at::Generator cpu_;
  StreamEvent last_draw_;
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

StreamEvent last_draw(const at::Generator& hpu) {
  return static_cast<const HPUGeneratorImpl*>(hpu.unsafeGetGeneratorImpl())->last_draw();
}

void set_last_draw(const at::Generator& hpu, const StreamEvent& event) {
  static_cast<HPUGeneratorImpl*>(hpu.unsafeGetGeneratorImpl())->set_last_draw(event);
}

at::Generator cpu_generator(const at::Generator& hpu) {
  return static_cast<const HPUGeneratorImpl*>(hpu.unsafeGetGeneratorImpl())->cpu();
}

}  // namespace hpu_sim
