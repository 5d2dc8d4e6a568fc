// Device events for a profile: each kernel, copy, collective and compilation with its measured times. Without a
// recording, an operator pays for one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace hpu_sim {

struct TraceEvent {
  const char* kind;   // a literal: kernel, h2d, d2h, d2d, collective, compilation
  std::string name;   // a copy, because an operator may be deregistered while the recording lasts
  int64_t start_ns;   // since the epoch, as in torch's traces
  int64_t end_ns;     // as `start_ns`
  int64_t thread_id;  // the system's id of the launching thread, as in torch's traces
  int64_t bytes;
};

inline std::atomic<bool> device_is_traced{false};

inline bool is_traced() {
  return device_is_traced.load(std::memory_order_relaxed);
}

int64_t now_ns();
int64_t current_thread_id();

struct DeviceTrace {
  std::vector<TraceEvent> events;
  int64_t num_dropped = 0;  // events beyond the maximum
};

// Starts a recording and drops the events of an earlier one. There is one recording at a time, as torch has one
// profiler at a time.
void start_device_trace();

// Stops the recording, if any, and returns its events.
DeviceTrace stop_device_trace();

void record_trace_event(TraceEvent event);

// Records the time between its construction and its destruction.
class ScopedTraceEvent {
 public:
  // `name` must outlive the object. `thread` launched the event; 0 for this one.
  ScopedTraceEvent(const char* kind, const char* name, int64_t bytes = 0, int64_t thread = 0)
      : kind_(kind), name_(name), bytes_(bytes), thread_(thread) {
    if (is_traced()) {
      start_ns_ = now_ns();
    }
  }
  ~ScopedTraceEvent() {
    if (start_ns_ != 0) {
      record_trace_event({kind_, name_, start_ns_, now_ns(), thread_ == 0 ? current_thread_id() : thread_, bytes_});
    }
  }
  ScopedTraceEvent(const ScopedTraceEvent&) = delete;
  ScopedTraceEvent& operator=(const ScopedTraceEvent&) = delete;

 private:
  const char* kind_;
  const char* name_;
  int64_t bytes_;
  int64_t thread_;
  int64_t start_ns_ = 0;
};

}  // namespace hpu_sim
