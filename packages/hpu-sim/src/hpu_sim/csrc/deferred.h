// Opt-in asynchrony, by HPU_SIM_ASYNC=1: a non-blocking copy or a collective takes effect only when something waits for
// it. A missing wait, which is a race on a card, then gives wrong numbers in every run.
//
// - A copy to the device reads its source when an operator of its stream, or of one that waits for its stream, uses the
//   target, or when the host waits for its stream.
// - A copy to pinned memory writes its target when the host waits for its stream.
// - A collective writes its outputs when its work is waited for or found completed, or when the device is synchronized.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

#include "execution.h"
#include "fork_safety.h"

namespace hpu_sim {

inline bool is_async() {
  return execution_mode() == ExecutionMode::kLater;
}

// What a stream or an event comes after: by stream, the number of its last copy.
using StreamClock = std::map<int64_t, uint64_t>;

// The deferred copies of the process, in the order of their calls.
class DeferredCopies {
 public:
  // Defers `target.copy_(source)`, both on the CPU, in the current stream.
  void push(at::Tensor target, at::Tensor source, bool is_to_device);

  // Runs the copies that the current stream comes after, up to the last one into `storage`. Without deferred copies it
  // costs an atomic load.
  void run_for(const c10::Storage& storage) {
    if (C10_UNLIKELY(size_.load(std::memory_order_acquire) != 0)) {
      run_up_to(storage);
    }
  }
  void run_for(const at::Tensor& tensor) { run_for(tensor.storage()); }

  // Returns what an event that is recorded in the stream now comes after.
  StreamClock clock_of(int64_t stream);

  // Makes the stream come after `clock`, as waiting for an event does.
  void order_after(int64_t stream, const StreamClock& clock);

  // Runs the copies of `clock`: the host waits for it.
  void run_up_to(const StreamClock& clock);

  void run_all();

 private:
  struct Copy {
    at::Tensor target;
    at::Tensor source;
    bool is_to_device;
    int64_t stream;
    uint64_t number;
  };

  void run_up_to(const c10::Storage& storage);

  // Runs those of the first `count` copies for which `is_chosen`. Returns them, to be destroyed without the mutex: the
  // last reference to a storage may need Python's lock.
  std::vector<Copy> run_first(size_t count, const std::function<bool(const Copy&)>& is_chosen);

  // Held while copies run, so that no thread uses a target before its copy is complete.
  ForkSafeMutex mutex_;
  std::deque<Copy> copies_;
  std::map<int64_t, StreamClock> clocks_;
  uint64_t num_pushed_ = 0;
  std::atomic<size_t> size_{0};
};

DeferredCopies& deferred_copies();

}  // namespace hpu_sim
