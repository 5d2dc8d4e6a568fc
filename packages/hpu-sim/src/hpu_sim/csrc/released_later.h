// Objects that a thread without Python hands over for another thread to destroy: their tensors may have Python objects,
// and a gloo thread that destroys these while Python exits aborts the process.
#pragma once

#include <atomic>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "fork_safety.h"

namespace hpu_sim {

class ReleasedLater {
 public:
  using Object = c10::intrusive_ptr<c10::intrusive_ptr_target>;

  void keep(Object object);

  // Destroys the objects that nobody else holds any more. Device memory that they hold is free before it is counted or
  // allocated. Without objects it costs an atomic load.
  void release() {
    if (C10_UNLIKELY(size_.load(std::memory_order_acquire) != 0)) {
      release_unshared();
    }
  }

 private:
  void release_unshared();

  ForkSafeMutex mutex_;
  std::vector<Object> objects_;
  std::atomic<size_t> size_{0};
};

ReleasedLater& released_later();

}  // namespace hpu_sim
