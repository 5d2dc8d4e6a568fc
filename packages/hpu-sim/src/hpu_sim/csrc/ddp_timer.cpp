// Timer of DistributedDataParallel's reducer, which warns about a device type without one.
#include "common.h"

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace hpu_sim {
namespace {

// Kernels have finished when their call returns, so the host's clock measures them.
class HPUTimer final : public c10d::Timer {
 public:
  explicit HPUTimer(c10::Device /*device*/) {}

  Optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t begin = getTimeRef(start);
    const int64_t finish = getTimeRef(end);
    // An end before its start is left over from an earlier iteration.
    if (begin < 0 || finish < begin) {
      return kNone;
    }
    return finish - begin;
  }
};

}  // namespace
}  // namespace hpu_sim

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::HPU, hpu_sim::HPUTimer)
}  // namespace c10d
