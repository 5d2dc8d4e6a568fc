// The device's random number generator, separate from the CPU's.
#pragma once

#include <ATen/core/Generator.h>

#include "stream.h"

namespace hpu_sim {

// Returns the generator of operators that are given none. A process has one, as it has one device.
const at::Generator& default_generator();

at::Generator new_generator();

// The last work that draws from a generator of the device. Whatever draws next waits for it, in any stream.
StreamEvent last_draw(const at::Generator& hpu);
void set_last_draw(const at::Generator& hpu, const StreamEvent& event);

// Returns the CPU generator that holds the state of `hpu`. CPU kernels accept no other kind.
at::Generator cpu_generator(const at::Generator& hpu);

}  // namespace hpu_sim
