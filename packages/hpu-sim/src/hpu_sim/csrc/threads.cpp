#include "threads.h"

#include <atomic>
#include <thread>

#include <ATen/Parallel.h>

namespace hpu_sim {
namespace {

// The thread that loads the device is the interpreter's main thread, or the one that uses torch in its place.
const std::thread::id program_thread = std::this_thread::get_id();
std::atomic<int> program_threads{0};

}  // namespace

void follow_thread_count() {
  const int own = at::get_num_threads();
  if (std::this_thread::get_id() == program_thread) {
    program_threads.store(own, std::memory_order_relaxed);
    return;
  }
  const int wanted = program_threads.load(std::memory_order_relaxed);
  if (wanted != 0 && wanted != own) {
    at::set_num_threads(wanted);
  }
}

}  // namespace hpu_sim
