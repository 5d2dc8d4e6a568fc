#include "events.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "allocator.h"
#include "fork_safety.h"
#include "graph.h"

namespace hpu_sim {
namespace {

// None of these is destroyed: gloo's threads may end an event while the process exits.
ForkSafeMutex& changes_mutex = *new ForkSafeMutex();
std::vector<MemoryChange>& changes = *new std::vector<MemoryChange>();
ForkSafeMutex& trace_mutex = *new ForkSafeMutex();
std::vector<TraceEvent>& trace = *new std::vector<TraceEvent>();

}  // namespace

void set_listener(Listener listener, int sorts) {
  if ((sorts & kOperators) == 0 || !is_recorded()) {
    take_memory_changes();
  }
  current_listener = listener;
  listening = sorts | (listening & kTimes);
}

void record_host_sync(const std::string& op, const char* kind, torch::jit::Stack values) {
  const bool is_later = execution_mode() == ExecutionMode::kLater;
  const auto event = is_later ? current_stream()->record() : StreamEvent{};
  announce_host_sync(op, kind, std::move(values));
  wait_on_host(event);
  join_pipeline();
}

void announce_host_sync(const std::string& op, const char* kind, torch::jit::Stack values) {
  count(Tally::kHostSync);
  graph_recorder().flush();
  if (is_heard()) {
    notify({kind, op, "", 0, nullptr, {}, std::move(values)});
  }
}

void record_memory(int64_t storage, int64_t bytes) {
  if (is_recorded()) {
    const std::lock_guard<std::mutex> lock(changes_mutex);
    changes.emplace_back(storage, bytes);
  }
}

std::vector<MemoryChange> take_memory_changes() {
  const std::lock_guard<std::mutex> lock(changes_mutex);
  return std::exchange(changes, {});
}

int64_t storage_number(const c10::Storage& storage) {
  if (const auto* value = known_value(storage)) {
    return value->number;
  }
  // An address, which is no number of a storage of the device.
  return -static_cast<int64_t>(reinterpret_cast<uintptr_t>(storage.unsafeGetStorageImpl()));
}

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t current_thread_id() {
  thread_local const auto id = static_cast<int64_t>(syscall(SYS_gettid));
  return id;
}

void start_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex);
  trace.clear();
  listening |= kTimes;
}

std::vector<TraceEvent> stop_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex);
  listening &= ~kTimes;
  return std::exchange(trace, {});
}

void record_trace_event(TraceEvent event) {
  const std::lock_guard<std::mutex> lock(trace_mutex);
  if (is_traced()) {  // The event may have ended after the recording.
    trace.push_back(std::move(event));
  }
}

}  // namespace hpu_sim
