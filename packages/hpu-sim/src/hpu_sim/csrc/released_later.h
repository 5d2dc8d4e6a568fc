// Objects that a thread without Python hands over for another thread to destroy: their tensors may have Python objects,
// and a gloo thread that destroys these while Python exits aborts the process.
#pragma once

#include "common.h"

namespace hpu_sim {

void release_later(c10::intrusive_ptr<c10::intrusive_ptr_target> object);

inline std::atomic<size_t> num_released_later{0};
void destroy_unshared();

// Destroys the objects that nobody else holds any more. Device memory that they hold is free before it is counted or
// allocated. Without objects it costs an atomic load.
inline void destroy_released() {
  if (C10_UNLIKELY(num_released_later.load(std::memory_order_acquire) != 0)) {
    destroy_unshared();
  }
}

}  // namespace hpu_sim
