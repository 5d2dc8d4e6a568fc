// Devices, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"
#include "events.h"
#include "graph.h"
#include "guard.h"
#include "stream.h"

namespace hpu_sim {
namespace {

using Clock = std::chrono::steady_clock;

bool is_asynchronous() {
  return execution_mode() == ExecutionMode::kLater;
}

// Starts what comes before an event.
bool has_happened(const StreamEvent& event) {
  if (event.stream != nullptr) {
    event.stream->start(event.number);
  }
  const bool is_reached = event.is_reached();
  land();
  return is_reached;
}

DeviceEvent* device_event(void* event) {
  return static_cast<DeviceEvent*>(event);
}

std::atomic<c10::StreamId> next_stream{0};

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

  c10::Stream getStream(c10::Device /*device*/) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, current_stream_id);
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
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const auto previous = getStream(kDevice);
    current_stream_id = stream.id();
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override {
    if (!is_asynchronous()) {
      return true;
    }
    join_pipeline();
    return has_happened(stream_of(stream.id())->record());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    announce_host_sync("Stream.synchronize");
    if (is_asynchronous()) {
      wait_on_host(stream_of(stream.id())->record());
    }
    join_pipeline();
  }

  void record(
      void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/, c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new DeviceEvent();
    }
    device_event(*event)->record(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      device_event(event)->block(stream.id());
    }
  }
  bool queryEvent(void* event) const override { return event == nullptr || device_event(event)->query(); }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override { delete device_event(event); }
#if HPU_SIM_TORCH >= 204
  void synchronizeEvent(void* event) const override {
    const DeviceEvent not_recorded;
    (event == nullptr ? not_recorded : *device_event(event)).synchronize();
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex /*index*/) const override {
    return milliseconds_between(device_event(start), device_event(end));
  }
#endif
#if HPU_SIM_TORCH >= 206
  void synchronizeDevice(c10::DeviceIndex /*index*/) const override { synchronize_device(); }
#endif
};

C10_REGISTER_GUARD_IMPL(HPU, HPUGuardImpl);

}  // namespace

void DeviceEvent::record(int64_t stream) {
  Record record{{}, std::make_shared<std::atomic<Clock::rep>>(0)};
  const auto stamp = [reached_at = record.reached_at] { *reached_at = Clock::now().time_since_epoch().count(); };
  if (is_asynchronous()) {
    join_pipeline();
    graph_recorder().flush();
    record.position = stream_of(stream)->push("record", stamp);
  } else {
    stamp();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  record_ = std::move(record);
}

void DeviceEvent::block(int64_t stream) const {
  if (is_asynchronous()) {
    join_pipeline();
    stream_of(stream)->wait_for(last_record().position);
  }
}

bool DeviceEvent::query() const {
  return has_happened(last_record().position);
}

void DeviceEvent::synchronize() const {
  announce_host_sync("Event.synchronize");
  wait_on_host(last_record().position);
  join_pipeline();
}

double milliseconds_between(const DeviceEvent* start, const DeviceEvent* end) {
  const auto first = start == nullptr ? DeviceEvent::Record{} : start->last_record();
  const auto last = end == nullptr ? DeviceEvent::Record{} : end->last_record();
  TORCH_CHECK(
      first.reached_at != nullptr && last.reached_at != nullptr,
      "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(
      first.position.is_reached() && last.position.is_reached(),
      "Both events must have happened before their times can be compared: synchronize the later one.");
  const Clock::duration elapsed(*last.reached_at - *first.reached_at);
  return std::chrono::duration<double, std::milli>(elapsed).count();
}

void check_device_index(c10::DeviceIndex index) {
  if (index > 0) {
    const auto number = static_cast<int>(index);
    throw_unsupported(
        "hpu:" + std::to_string(number), "habana active device ", number, " != 0: a process owns one device, hpu:0.");
  }
}

void synchronize_device() {
  announce_host_sync("synchronize");
  land();
  wait_for_device(/*keeps_gil=*/true);
  join_pipeline();
}

int64_t new_stream_id() {
  return next_stream++ % (kNumStreams - 1) + 1;
}

}  // namespace hpu_sim
