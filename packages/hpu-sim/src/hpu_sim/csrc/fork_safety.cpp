#include "fork_safety.h"

#include <pthread.h>

#include <array>
#include <vector>

namespace hpu_sim {
namespace {

struct Registry {
  std::mutex mutex;
  std::array<std::vector<std::mutex*>, 3> by_order;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

void lock_all() {
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
}

}  // namespace

ForkSafeMutex::ForkSafeMutex(ForkOrder order) {
  static const int registered = pthread_atfork(&lock_all, &unlock_all, &unlock_all);
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().by_order[static_cast<size_t>(order)].push_back(this);
}

}  // namespace hpu_sim
