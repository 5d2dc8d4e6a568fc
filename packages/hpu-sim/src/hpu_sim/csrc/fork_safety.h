// Mutexes that a forked child can lock.
#pragma once

#include <mutex>

namespace hpu_sim {

// Order in which a fork locks mutexes: that in which threads nest them. One is the outermost.
enum class ForkOrder { kOuter, kInner, kOutermost };

// A mutex that every fork holds. Without that, a child has a mutex for ever locked if another thread of its parent held
// it, and a worker of a DataLoader that frees pinned memory hangs. It must not be destroyed.
class ForkSafeMutex final : public std::mutex {
 public:
  explicit ForkSafeMutex(ForkOrder order = ForkOrder::kOuter);
};

}  // namespace hpu_sim
