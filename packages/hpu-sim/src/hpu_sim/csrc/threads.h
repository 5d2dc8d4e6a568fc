#pragma once

namespace hpu_sim {

// Gives autograd's thread for the device as many threads to compute with as the program's own thread has. Torch sets
// that number once, when it starts the thread, and sums in another number of threads differ in their last bits.
void follow_thread_count();

}  // namespace hpu_sim
