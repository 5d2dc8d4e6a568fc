#include "device_trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "fork_safety.h"

namespace hpu_sim {
namespace {

// About 100 MB. A recording that is never stopped must not fill the host's memory.
constexpr size_t kMaxEvents = 1'000'000;

// Never destroyed: gloo's threads may end an event while the process exits.
ForkSafeMutex& trace_mutex() {
  static auto* instance = new ForkSafeMutex();
  return *instance;
}

DeviceTrace& trace() {
  static auto* instance = new DeviceTrace();
  return *instance;
}

}  // namespace

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t current_thread_id() {
  thread_local const auto id = static_cast<int64_t>(syscall(SYS_gettid));
  return id;
}

void start_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  trace() = DeviceTrace{};
  device_is_traced = true;
}

DeviceTrace stop_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  device_is_traced = false;
  return std::exchange(trace(), DeviceTrace{});
}

void record_trace_event(TraceEvent event) {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  if (!is_traced()) {
    return;  // The event ended after the recording.
  }
  if (trace().events.size() < kMaxEvents) {
    trace().events.push_back(std::move(event));
  } else {
    ++trace().num_dropped;
  }
}

}  // namespace hpu_sim
