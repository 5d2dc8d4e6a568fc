// Random numbers of the device: a generator of its own, beside the CPU's.
#pragma once

#include <ATen/core/Generator.h>

namespace hpu_sim {

// The generator that operators use when they are given none. One per process, as there is one card.
const at::Generator& default_generator();

at::Generator new_generator();

// The CPU generator that holds the state of `device`; CPU kernels accept no other kind.
at::Generator host_generator(const at::Generator& device);

// For kernels that draw from the CPU's default generator without asking: they draw from the device's while this lives.
class DefaultGeneratorSwap {
 public:
  DefaultGeneratorSwap();
  ~DefaultGeneratorSwap();
  DefaultGeneratorSwap(const DefaultGeneratorSwap&) = delete;
  DefaultGeneratorSwap& operator=(const DefaultGeneratorSwap&) = delete;

 private:
  c10::intrusive_ptr<c10::TensorImpl> saved_;
};

}  // namespace hpu_sim
