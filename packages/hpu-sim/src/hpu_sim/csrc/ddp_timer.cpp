// DistributedDataParallel times its phases with a timer per device type, and warns where there is none.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "torch_compat.h"

namespace hpu_sim {
namespace {

// Work is done when its call returns, so the host's clock is right.
class HpuTimer final : public c10d::Timer {
 public:
  explicit HpuTimer(c10::Device /*device*/) {}

  Optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t begin = getTimeRef(start);
    const int64_t finish = getTimeRef(end);
    // An end before its start belongs to an earlier iteration.
    if (begin < 0 || finish < begin) {
      return kNone;
    }
    return finish - begin;
  }
};

}  // namespace
}  // namespace hpu_sim

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::HPU, hpu_sim::HpuTimer)
}  // namespace c10d
