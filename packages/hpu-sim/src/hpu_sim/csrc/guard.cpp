// Devices, streams and events. Kernels finish before their call returns, so the only pending work of a stream is that
// of deferred.h, and an event is a timestamp and what it comes after.
#include <atomic>
#include <chrono>
#include <string>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "allocator.h"
#include "counters.h"
#include "deferred.h"
#include "diagnostics.h"
#include "guard.h"
#include "hccl_work.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

using Clock = std::chrono::steady_clock;

struct EventTimestamp {
  Clock::time_point recorded;
  StreamClock comes_after;
};

std::atomic<int> device_count{1};

// The bridge has a pool of 32 streams, used round-robin.
constexpr c10::StreamId kStreamPoolSize = 32;
std::atomic<c10::StreamId> next_stream{0};
thread_local c10::StreamId current_stream = 0;

class HPUGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::HPU; }

  c10::Device exchangeDevice(c10::Device device) const override {
    check_device_index(device.index());
    return kDevice;
  }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override { check_device_index(device.index()); }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
#if HPU_SIM_TORCH >= 202
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count.load()); }
#else
  // Autograd starts a thread per device and sets its device, which throws for an index above 0.
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
#endif

  c10::Stream getStream(c10::Device /*device*/) const HPU_SIM_STREAM_NOEXCEPT override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high_priority*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, new_stream_id());
  }
#if HPU_SIM_TORCH >= 204
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
#endif
  c10::Stream exchangeStream(c10::Stream stream) const HPU_SIM_STREAM_NOEXCEPT override {
    const auto previous = getStream(kDevice);
    current_stream = stream.id();
    return previous;
  }
  // Reporting completion makes the deferred copies before it visible.
  bool queryStream(const c10::Stream& stream) const override {
    deferred_copies().run_up_to(deferred_copies().clock_of(stream.id()));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    record_host_sync("Stream.synchronize", deferred_copies().clock_of(stream.id()));
  }

  void record(
      void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/, c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new EventTimestamp();
    }
    *static_cast<EventTimestamp*>(*event) = {Clock::now(), deferred_copies().clock_of(stream.id())};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      deferred_copies().order_after(stream.id(), static_cast<EventTimestamp*>(event)->comes_after);
    }
  }
  bool queryEvent(void* event) const override {
    if (event != nullptr) {
      deferred_copies().run_up_to(static_cast<EventTimestamp*>(event)->comes_after);
    }
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<EventTimestamp*>(event);
  }
#if HPU_SIM_TORCH >= 204
  void synchronizeEvent(void* event) const override {
    record_host_sync(
        "Event.synchronize", event == nullptr ? StreamClock{} : static_cast<EventTimestamp*>(event)->comes_after);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*index*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    const auto elapsed = static_cast<EventTimestamp*>(end)->recorded - static_cast<EventTimestamp*>(start)->recorded;
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
#endif
#if HPU_SIM_TORCH >= 205
  void synchronizeDevice(c10::DeviceIndex /*index*/) const override { synchronize_device(); }
#endif
};

C10_REGISTER_GUARD_IMPL(HPU, HPUGuardImpl);

}  // namespace

void check_device_index(c10::DeviceIndex index) {
  if (index > 0) {
    const auto number = static_cast<int>(index);
    throw_unsupported(
        "hpu:" + std::to_string(number), "habana active device ", number, " != 0: a process owns one device, hpu:0.");
  }
}

void synchronize_device() {
  record_host_sync("synchronize");
  deferred_copies().run_all();
  wait_for_collectives();
}

void set_device_count(int count) {
  device_count = count;
}

int get_device_count() {
  return device_count;
}

int64_t current_stream_id() {
  return current_stream;
}

void set_current_stream_id(int64_t id) {
  current_stream = id;
}

int64_t new_stream_id() {
  return next_stream++ % kStreamPoolSize + 1;
}

}  // namespace hpu_sim
