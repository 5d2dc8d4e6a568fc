#include "events.h"

#include <mutex>

#include "allocator.h"
#include "fork_safety.h"

namespace hpu_sim {
namespace {

ForkSafeMutex& changes_mutex() {
  static auto* instance = new ForkSafeMutex();
  return *instance;
}

std::vector<MemoryChange>& changes() {
  static auto* instance = new std::vector<MemoryChange>();
  return *instance;
}

}  // namespace

void set_listener(Listener listener, int sorts) {
  if ((sorts & kOperators) == 0 || !is_recorded()) {
    take_memory_changes();
  }
  if (!is_observed()) {
    ++listener_generation;
  }
  current_listener = listener;
  listening = sorts;
}

void record_memory(int64_t storage, int64_t bytes) {
  if (is_recorded()) {
    const std::lock_guard<std::mutex> lock(changes_mutex());
    changes().emplace_back(storage, bytes);
  }
}

std::vector<MemoryChange> take_memory_changes() {
  const std::lock_guard<std::mutex> lock(changes_mutex());
  return std::exchange(changes(), {});
}

int64_t storage_number(const c10::Storage& storage) {
  if (const auto* value = known_value(storage)) {
    return value->number;
  }
  // An address, which is no number of a storage of the device.
  return -static_cast<int64_t>(reinterpret_cast<uintptr_t>(storage.unsafeGetStorageImpl()));
}

}  // namespace hpu_sim
