// Counters behind `hpu_sim.stats()`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <ATen/core/stack.h>

#include "stream.h"

namespace hpu_sim {

struct Counters {
  std::atomic<int64_t> host_syncs{0};
  std::atomic<int64_t> h2d_copies{0};
  std::atomic<int64_t> h2d_bytes{0};
  std::atomic<int64_t> d2h_copies{0};
  std::atomic<int64_t> d2h_bytes{0};
  std::atomic<int64_t> collectives{0};
  std::atomic<int64_t> collective_bytes{0};

  void reset();
};

Counters& counters();

// Records a host-device synchronization caused by `op`, as an event of this kind, with what is known of the values that
// the host reads. In lazy mode it flushes the graph. Blocks until the current stream has run, and raises a late error.
void record_host_sync(const std::string& op, const char* kind = "host_sync", torch::jit::Stack values = {});

// Records one that waits for `event`.
void record_host_sync(
    const std::string& op, const StreamEvent& event, const char* kind = "host_sync", torch::jit::Stack values = {});

}  // namespace hpu_sim
