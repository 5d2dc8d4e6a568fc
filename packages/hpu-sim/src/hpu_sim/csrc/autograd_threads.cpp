#include "autograd_threads.h"

#include "common.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include "allocator.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace hpu_sim {
namespace {

// The thread that loads the extension: the main thread, or the one that uses torch in its place.
const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<int> main_num_threads{0};

}  // namespace

void sync_intraop_threads() {
  const int current = at::get_num_threads();
  if (std::this_thread::get_id() == main_thread) {
    main_num_threads.store(current, std::memory_order_relaxed);
    return;
  }
  const int wanted = main_num_threads.load(std::memory_order_relaxed);
  if (wanted != 0 && wanted != current) {
    at::set_num_threads(wanted);
  }
}

void share_malloc_arena() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) {
    mallopt(M_ARENA_MAX, 1);
  }
#endif
}

void drain_autograd_engine() {
  // The device thread releases a graph task before it takes the next one, so one more backward pass, without any
  // Python object, drains all earlier ones.
  const at::AutoGradMode with_gradients(true);
  const auto leaf = at::ones({1}, at::TensorOptions(kDevice)).requires_grad_(true);
  leaf.sum().backward();
}

}  // namespace hpu_sim
