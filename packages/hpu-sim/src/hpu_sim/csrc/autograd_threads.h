// Workarounds for the autograd engine's device thread.
#pragma once

namespace hpu_sim {

// Copies the intra-op thread count of the main thread to the calling thread. The engine sets the count of its device
// thread once, when it starts the thread, and sums over another number of threads differ in their last bits.
void sync_intraop_threads();

// Lets the device thread allocate from the main thread's arena, as backward passes of CPU tensors do; glibc only. What
// it allocates is mostly freed by the main thread, and glibc returns such memory of another arena to the system at
// every step. Threads that have an arena keep it. The environment variable MALLOC_ARENA_MAX takes precedence.
void share_malloc_arena();

// Returns when the device thread has released every earlier backward pass. To be called before the interpreter shuts
// down.
//
// The engine wakes the caller of a backward pass before its device thread releases the graph task, which owns a Python
// object. If the interpreter shuts down in between, the thread blocks on the GIL and the process aborts.
void drain_autograd_engine();

}  // namespace hpu_sim
