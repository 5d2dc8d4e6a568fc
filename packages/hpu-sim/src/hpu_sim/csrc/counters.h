// What the simulator counts while a program runs. Read from Python through `hpu_sim.stats()`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

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

// The host waits, because of `op`, until the device has run everything it was given. In lazy mode this ends the graph
// being recorded.
void synchronize_host(const std::string& op);

}  // namespace hpu_sim
