#include "deferred.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

namespace hpu_sim {

void DeferredCopies::push(at::Tensor target, at::Tensor source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  copies_.push_back({std::move(target), std::move(source)});
  size_ = copies_.size();
}

void DeferredCopies::run_up_to(const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const void* data = tensor.storage().data();
  size_t count = copies_.size();
  while (count != 0 && copies_[count - 1].target.storage().data() != data) {
    --count;
  }
  run_first(count);
}

void DeferredCopies::run_all() {
  if (size_.load(std::memory_order_acquire) != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    run_first(copies_.size());
  }
}

void DeferredCopies::run_first(size_t count) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  for (; count != 0; --count) {
    copies_.front().target.copy_(copies_.front().source);
    copies_.pop_front();
  }
  size_ = copies_.size();
}

DeferredCopies& deferred_copies() {
  // Never destroyed: tensors of other static objects may be in use at exit.
  static auto* instance = new DeferredCopies();
  return *instance;
}

}  // namespace hpu_sim
