#include "released_later.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hpu_sim {

void ReleasedLater::keep(Object object) {
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_.push_back(std::move(object));
  size_ = objects_.size();
}

void ReleasedLater::release_unshared() {
  // Destroyed without the lock, because a thread that has Python's may wait for it.
  std::vector<Object> released;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto first =
      std::partition(objects_.begin(), objects_.end(), [](const Object& object) { return object.use_count() > 1; });
  std::move(first, objects_.end(), std::back_inserter(released));
  objects_.erase(first, objects_.end());
  size_ = objects_.size();
}

ReleasedLater& released_later() {
  static auto* instance = new ReleasedLater();
  return *instance;
}

}  // namespace hpu_sim
