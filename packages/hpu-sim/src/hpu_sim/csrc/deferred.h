// Opt-in asynchrony, by HPU_SIM_ASYNC=1: a non-blocking copy or a collective takes effect only when something waits for
// it. A missing wait, which is a race on a card, then gives wrong numbers in every run.
//
// - A copy to the device reads its source when an operator uses the target, or when the host waits for the device.
// - A copy to pinned memory writes its target when the host waits for the device.
// - A collective writes its outputs when its work is waited for or found completed, or when the device is synchronized.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace hpu_sim {

// Set by `set_async`. Without it, nothing is deferred.
inline std::atomic<bool> async_enabled{false};

inline bool is_async() {
  return async_enabled.load(std::memory_order_relaxed);
}

inline void set_async(bool enabled) {
  async_enabled = enabled;
}

// The deferred copies of the process, in the order of their calls.
class DeferredCopies {
 public:
  // Defers `target.copy_(source)`, both on the CPU.
  void push(at::Tensor target, at::Tensor source);

  // Runs the copies up to the last one into the storage of `tensor`. Without deferred copies it costs an atomic load.
  void run_for(const at::Tensor& tensor) {
    if (C10_UNLIKELY(size_.load(std::memory_order_acquire) != 0)) {
      run_up_to(tensor);
    }
  }

  void run_all();

 private:
  struct Copy {
    at::Tensor target;
    at::Tensor source;
  };

  void run_up_to(const at::Tensor& tensor);
  void run_first(size_t count);

  // Held while copies run, so that no thread uses a target before its copy is complete.
  std::mutex mutex_;
  std::deque<Copy> copies_;
  std::atomic<size_t> size_{0};
};

DeferredCopies& deferred_copies();

}  // namespace hpu_sim
