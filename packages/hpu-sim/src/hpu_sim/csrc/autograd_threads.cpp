#include "autograd_threads.h"

#include <atomic>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/AutogradState.h>

#include "allocator.h"

namespace hpu_sim {
namespace {

// The thread that loads the extension: the main thread, or the one that uses torch in its place.
const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<int> main_num_threads{0};

class DeviceThreadGuard {
 public:
  DeviceThreadGuard() : was_enabled_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    use_device_thread(true);
  }
  ~DeviceThreadGuard() { use_device_thread(was_enabled_); }
  DeviceThreadGuard(const DeviceThreadGuard&) = delete;
  DeviceThreadGuard& operator=(const DeviceThreadGuard&) = delete;

 private:
  bool was_enabled_;
};

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

void use_device_thread(bool enabled) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(enabled);
}

void drain_autograd_engine() {
  // The device thread releases a graph task before it takes the next one, so one more backward pass, without any
  // Python object, drains all earlier ones.
  const at::AutoGradMode with_gradients(true);
  const DeviceThreadGuard on_device_thread;
  const auto leaf = at::ones({1}, at::TensorOptions(kDevice)).requires_grad_(true);
  leaf.sum().backward();
}

}  // namespace hpu_sim
