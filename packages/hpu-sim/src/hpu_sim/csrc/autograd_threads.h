// Workarounds for the autograd engine's device thread.
#pragma once

namespace hpu_sim {

// Copies the intra-op thread count of the main thread to the calling thread. The engine sets the count of its device
// thread once, when it starts the thread, and sums over another number of threads differ in their last bits.
void sync_intraop_threads();

// Sets whether backward passes that the calling thread starts run on the device thread, as on a card, or on the calling
// thread, as those of CPU tensors do. Waking another thread takes an eighth of a small step, and glibc returns the
// memory of that thread's arena to the system at every step.
void use_device_thread(bool enabled);

// Returns when the device thread has released every earlier backward pass. To be called before the interpreter shuts
// down.
//
// The engine wakes the caller of a backward pass before its device thread releases the graph task, which owns a Python
// object. If the interpreter shuts down in between, the thread blocks on the GIL and the process aborts.
void drain_autograd_engine();

}  // namespace hpu_sim
