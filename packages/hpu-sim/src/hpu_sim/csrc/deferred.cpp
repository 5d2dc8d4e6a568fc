#include "deferred.h"

#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

#include "allocator.h"
#include "dtypes.h"
#include "guard.h"

namespace hpu_sim {
namespace {

bool comes_after(const StreamClock& clock, int64_t stream, uint64_t number) {
  const auto found = clock.find(stream);
  return found != clock.end() && found->second >= number;
}

void merge(StreamClock& clock, const StreamClock& other) {
  for (const auto& [stream, number] : other) {
    clock[stream] = std::max(clock[stream], number);
  }
}

}  // namespace

void DeferredCopies::push(at::Tensor target, at::Tensor source, bool is_to_device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto stream = current_stream_id();
  copies_.push_back({std::move(target), std::move(source), is_to_device, stream, ++num_pushed_});
  clocks_[stream][stream] = num_pushed_;
  size_ = copies_.size();
}

void DeferredCopies::run_up_to(const c10::Storage& storage) {
  std::vector<Copy> done;
  const std::lock_guard<std::mutex> lock(mutex_);
  const void* data = host_address(storage);
  const auto& clock = clocks_[current_stream_id()];
  const auto is_before = [&](const Copy& copy) { return comes_after(clock, copy.stream, copy.number); };
  size_t count = copies_.size();
  while (count != 0 && !(host_address(copies_[count - 1].target.storage()) == data && is_before(copies_[count - 1]))) {
    --count;
  }
  done = run_first(count, is_before);
}

StreamClock DeferredCopies::clock_of(int64_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clocks_[stream];
}

void DeferredCopies::order_after(int64_t stream, const StreamClock& clock) {
  const std::lock_guard<std::mutex> lock(mutex_);
  merge(clocks_[stream], clock);
}

void DeferredCopies::run_up_to(const StreamClock& clock) {
  if (size_.load(std::memory_order_acquire) != 0) {
    std::vector<Copy> done;
    const std::lock_guard<std::mutex> lock(mutex_);
    done = run_first(copies_.size(), [&](const Copy& copy) { return comes_after(clock, copy.stream, copy.number); });
  }
}

void DeferredCopies::run_all() {
  if (size_.load(std::memory_order_acquire) != 0) {
    std::vector<Copy> done;
    const std::lock_guard<std::mutex> lock(mutex_);
    done = run_first(copies_.size(), [](const Copy&) { return true; });
  }
}

std::vector<DeferredCopies::Copy> DeferredCopies::run_first(
    size_t count, const std::function<bool(const Copy&)>& is_chosen) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  std::vector<Copy> done;
  std::deque<Copy> left;
  for (size_t i = 0; i < copies_.size(); ++i) {
    auto& copy = copies_[i];
    if (i < count && is_chosen(copy)) {
      copy.target.copy_(copy.source);
      if (copy.is_to_device) {
        round_to_stored(copy.target);
      }
      done.push_back(std::move(copy));
    } else {
      left.push_back(std::move(copy));
    }
  }
  copies_ = std::move(left);
  size_ = copies_.size();
  return done;
}

DeferredCopies& deferred_copies() {
  // Never destroyed: tensors of other static objects may be in use at exit.
  static auto* instance = new DeferredCopies();
  return *instance;
}

}  // namespace hpu_sim
