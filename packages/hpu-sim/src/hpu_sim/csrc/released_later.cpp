#include "released_later.h"

#include "fork_safety.h"

namespace hpu_sim {
namespace {

using Object = c10::intrusive_ptr<c10::intrusive_ptr_target>;

ForkSafeMutex& released_mutex = *new ForkSafeMutex();
std::vector<Object>& released_objects = *new std::vector<Object>();

}  // namespace

void release_later(Object object) {
  const std::lock_guard<std::mutex> lock(released_mutex);
  released_objects.push_back(std::move(object));
  num_released_later = released_objects.size();
}

void destroy_unshared() {
  // Destroyed without the lock, because a thread that has Python's may wait for it.
  std::vector<Object> unshared;
  const std::lock_guard<std::mutex> lock(released_mutex);
  const auto first = std::partition(
      released_objects.begin(), released_objects.end(), [](const Object& object) { return object.use_count() > 1; });
  std::move(first, released_objects.end(), std::back_inserter(unshared));
  released_objects.erase(first, released_objects.end());
  num_released_later = released_objects.size();
}

}  // namespace hpu_sim
