#include "fork_safety.h"

#include "common.h"

#include <pthread.h>

namespace hpu_sim {
namespace {

struct Registry {
  // Locked before the mutex below, which a thread that holds it needs to make another one.
  std::atomic<std::mutex*> outermost{nullptr};
  std::mutex* locked_outermost = nullptr;
  std::mutex mutex;
  std::array<std::vector<std::mutex*>, 2> by_order;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

void lock_all() {
  if (auto* outermost = registry().outermost.load()) {
    outermost->lock();
    registry().locked_outermost = outermost;
  }
  registry().mutex.lock();
  for (const auto& mutexes : registry().by_order) {
    for (auto* mutex : mutexes) {
      mutex->lock();
    }
  }
}

void unlock_all() {
  for (const auto& mutexes : registry().by_order) {
    for (auto* mutex : mutexes) {
      mutex->unlock();
    }
  }
  registry().mutex.unlock();
  if (auto* outermost = std::exchange(registry().locked_outermost, nullptr)) {
    outermost->unlock();
  }
}

}  // namespace

ForkSafeMutex::ForkSafeMutex(ForkOrder order) {
  static const int registered = pthread_atfork(&lock_all, &unlock_all, &unlock_all);
  static_cast<void>(registered);
  if (order == ForkOrder::kOutermost) {
    registry().outermost = this;
    return;
  }
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().by_order.at(static_cast<size_t>(order)).push_back(this);
}

}  // namespace hpu_sim
