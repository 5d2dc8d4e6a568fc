#include "device_trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace hpu_sim {
namespace {

// 48 MB: a recording that nobody ends must not fill the memory.
constexpr size_t kMostIntervals = 1'000'000;

std::mutex& trace_mutex() {
  static std::mutex instance;
  return instance;
}

DeviceTrace& trace() {
  static DeviceTrace instance;
  return instance;
}

}  // namespace

int64_t wall_clock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t this_thread() {
  thread_local const auto number = static_cast<int64_t>(syscall(SYS_gettid));
  return number;
}

void start_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  trace() = DeviceTrace{};
  device_is_traced = true;
}

DeviceTrace take_device_trace() {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  device_is_traced = false;
  return std::exchange(trace(), DeviceTrace{});
}

void add_to_device_trace(const Interval& interval) {
  const std::lock_guard<std::mutex> lock(trace_mutex());
  if (!is_traced()) {
    return;  // It ended after the recording.
  }
  if (trace().intervals.size() < kMostIntervals) {
    trace().intervals.push_back(interval);
  } else {
    ++trace().dropped;
  }
}

}  // namespace hpu_sim
