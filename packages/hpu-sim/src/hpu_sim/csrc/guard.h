#pragma once

#include "common.h"
#include "stream.h"

namespace hpu_sim {

// Throws the bridge's error for an index above 0: a process owns one device, whatever its module id, at index 0.
void check_device_index(c10::DeviceIndex index);

// Blocks until all work of the device has completed, and records a host-device synchronization.
void synchronize_device();

// Number of devices of the machine, of which a process acquires one.
inline std::atomic<int> device_count{1};

// Makes a CUDA build of torch on a machine without a GPU behave as a CPU build, for the rest of the process. Throws if
// there is a GPU.
//
// From torch 2.9 on, CUDA builds report CUDA as the accelerator even with no GPU, and then reject backward passes on
// hpu.
void disable_cuda_hooks();

// Stream ids: 0 is the default stream, the others come from a pool of 32, used round-robin, as on the bridge.
inline constexpr int64_t kNumStreams = 33;
inline thread_local int64_t current_stream_id = 0;
int64_t new_stream_id();

// An event of the program. Streams are given by their ids.
class DeviceEvent {
 public:
  void record(int64_t stream);
  void block(int64_t stream) const;
  bool query() const;
  void synchronize() const;

 private:
  friend double milliseconds_between(const DeviceEvent* start, const DeviceEvent* end);

  struct Record {
    StreamEvent position;
    // The time at which the device reaches it; null before the event is recorded.
    std::shared_ptr<std::atomic<std::chrono::steady_clock::rep>> reached_at;
  };

  Record last_record() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return record_;
  }

  mutable std::mutex mutex_;
  Record record_;
};

// Throws if either was not recorded or has not happened.
double milliseconds_between(const DeviceEvent* start, const DeviceEvent* end);

}  // namespace hpu_sim
