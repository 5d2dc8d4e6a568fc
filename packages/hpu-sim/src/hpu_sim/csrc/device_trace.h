// When the device worked, for a profile: each kernel, copy, collective and compilation with its measured interval.
// Where no profile is recorded, an operator pays for one look at a flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace hpu_sim {

// Names are texts that live as long as the process: operators' own, or literals.
struct Interval {
  const char* kind;  // kernel, h2d, d2h, d2d, collective, compilation
  const char* name;
  int64_t begin;   // nanoseconds since the epoch, as in torch's traces
  int64_t end;     // the same
  int64_t thread;  // the system's number of the thread that launched it, as in torch's traces
  int64_t bytes;
};

inline std::atomic<bool> device_is_traced{false};

inline bool is_traced() {
  return device_is_traced.load(std::memory_order_relaxed);
}

int64_t wall_clock();
int64_t this_thread();

struct DeviceTrace {
  std::vector<Interval> intervals;
  int64_t dropped = 0;  // beyond the most that are kept
};

// Forgets what was recorded before. One recording at a time, as torch has one profiler at a time.
void start_device_trace();

// Ends the recording, if there is one, and gives it away.
DeviceTrace take_device_trace();

void add_to_device_trace(const Interval& interval);

// The interval between its making and its end, while a profile is recorded.
class Timed {
 public:
  Timed(const char* kind, const char* name, int64_t bytes = 0) : kind_(kind), name_(name), bytes_(bytes) {
    if (is_traced()) {
      begin_ = wall_clock();
    }
  }
  ~Timed() {
    if (begin_ != 0) {
      add_to_device_trace({kind_, name_, begin_, wall_clock(), this_thread(), bytes_});
    }
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const char* kind_;
  const char* name_;
  int64_t bytes_;
  int64_t begin_ = 0;
};

}  // namespace hpu_sim
