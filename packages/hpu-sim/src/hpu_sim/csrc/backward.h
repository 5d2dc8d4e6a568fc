#pragma once

namespace hpu_sim {

// Returns when the device's autograd thread has let go of every backward pass before the call.
//
// Torch wakes the caller of a backward pass before its device thread has dropped that pass, and with it a Python
// object. If the interpreter begins to end in between, the thread asks for the GIL, is unwound by Python through C++
// that cannot be unwound, and the process aborts. So a program that ends has to wait.
void finish_backward_passes();

}  // namespace hpu_sim
