#include "stream.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/utils/pybind.h>

#include "autograd_threads.h"
#include "events.h"
#include "fork_safety.h"
#include "graph.h"
#include "guard.h"
#include "strict.h"

namespace hpu_sim {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 1ms;
constexpr auto kForever = std::chrono::hours(24 * 365);

// Held by the work that computes, so that a fork finds no mutex of torch locked.
ForkSafeMutex& kernel_mutex = *new ForkSafeMutex(ForkOrder::kOutermost);

// All of these are never destroyed: threads of the device use them while the process exits. A forked child starts with
// new ones, because threads that it lacks may hold the mutexes.
struct Device {
  std::mutex mutex;
  std::array<StreamPtr, kNumStreams> by_id;
  std::vector<std::weak_ptr<Stream>> streams;

  std::mutex landing_mutex;
  std::deque<std::pair<StreamEvent, std::function<void()>>> landings;
  std::atomic<size_t> num_landings{0};

  std::mutex error_mutex;
  std::exception_ptr error;

  std::atomic<int> num_gil_requests{0};
};

void start_in_child();

Device*& current_device() {
  static Device* instance = [] {
    pthread_atfork(nullptr, nullptr, &start_in_child);
    return new Device();
  }();
  return instance;
}

Device& device() {
  return *current_device();
}

void start_in_child() {
  current_device() = new Device();
  has_kept_error = false;
  ++num_forks;
}

bool has_gil() {
  return PyGILState_Check() != 0;
}

// Lends Python's lock to work that asks for it.
void lend_gil() {
  if (device().num_gil_requests != 0) {
    const pybind11::gil_scoped_release no_gil;
    while (device().num_gil_requests != 0) {
      std::this_thread::sleep_for(kPoll);
    }
  }
}

std::vector<StreamPtr> all_streams() {
  std::vector<StreamPtr> result;
  const std::lock_guard<std::mutex> lock(device().mutex);
  for (const auto& each : device().streams) {
    if (auto stream = each.lock()) {
      result.push_back(std::move(stream));
    }
  }
  return result;
}

}  // namespace

bool StreamEvent::is_reached() const {
  return stream == nullptr || stream->has_reached(number);
}

StreamPtr Stream::create() {
  auto stream = std::make_shared<Stream>();
  {
    const std::lock_guard<std::mutex> lock(device().mutex);
    auto& streams = device().streams;
    streams.erase(
        std::remove_if(streams.begin(), streams.end(), [](const auto& each) { return each.expired(); }), streams.end());
    streams.push_back(stream);
  }
  std::thread([stream] { stream->run(); }).detach();
  return stream;
}

StreamEvent Stream::push(const char* op, std::function<void()> work, WorkKind kind) {
  if (is_of_parent()) {
    return {};
  }
  StreamEvent event{shared_from_this()};
  auto line = is_strict() && kind == WorkKind::kKernel ? launching_line() : std::string();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back({op, std::move(line), std::move(work), kind});
    event.number = ++num_pushed_;
    if (kind == WorkKind::kCopy) {
      return event;
    }
    num_started_ = num_pushed_;
  }
  pushed_.notify_one();
  return event;
}

void Stream::wait_for(const StreamEvent& event) {
  if (event.stream == nullptr || event.stream.get() == this || event.is_reached()) {
    return;
  }
  event.stream->start(event.number);
  push("wait", [event] { event.stream->wait_until(event.number, kForever); }, WorkKind::kWait);
}

StreamEvent Stream::record() {
  if (is_of_parent()) {
    return {};
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return {shared_from_this(), num_pushed_};
}

void Stream::start(uint64_t number) {
  if (is_of_parent()) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_started_ = std::max(num_started_, number);
  }
  pushed_.notify_one();
}

bool Stream::wait_until(uint64_t number, std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  return reached_.wait_for(lock, limit, [&] { return has_reached(number); });
}

void Stream::close() {
  if (is_of_parent()) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    num_started_ = num_pushed_;
  }
  pushed_.notify_one();
}

void Stream::run() {
  // Below autograd, and able to write to tensors of inference mode.
  const c10::InferenceMode inference;
  for (;;) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      pushed_.wait(lock, [this] { return num_done_ < num_started_ || is_closed_; });
      if (work_.empty()) {
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    run_work(work);
    work = Work{};  // Frees its tensors before it counts as done.
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++num_done_;
    }
    reached_.notify_all();
  }
}

void Stream::run_work(const Work& work) {
  try {
    if (work.kind == WorkKind::kWait) {
      work.run();
    } else {
      const std::lock_guard<std::mutex> lock(kernel_mutex);
      sync_intraop_threads();
      work.run();
    }
  } catch (const std::exception&) {
    keep_error(work.op, std::current_exception(), work.line);
  }
}

StreamPtr stream_of(int64_t id) {
  auto& slot = device().by_id.at(static_cast<size_t>(id));
  {
    const std::lock_guard<std::mutex> lock(device().mutex);
    if (slot != nullptr) {
      return slot;
    }
  }
  auto created = Stream::create();
  const std::lock_guard<std::mutex> lock(device().mutex);
  if (slot == nullptr) {
    slot = std::move(created);
  } else {
    created->close();
  }
  return slot;
}

StreamPtr current_stream() {
  return stream_of(current_stream_id);
}

void wait_on_host(const StreamEvent& event, bool keeps_gil) {
  if (!event.is_reached()) {
    event.stream->start(event.number);
    if (keeps_gil && has_gil()) {
      while (!event.stream->wait_until(event.number, 10ms)) {
        lend_gil();
      }
    } else {
      const WithoutGil no_gil;
      event.stream->wait_until(event.number, kForever);
    }
  }
  land();
}

void wait_for_device(bool keeps_gil) {
  for (const auto& stream : all_streams()) {
    wait_on_host(stream->record(), keeps_gil);
  }
}

void land_after(const StreamEvent& event, std::function<void()> write) {
  const std::lock_guard<std::mutex> lock(device().landing_mutex);
  device().landings.emplace_back(event, std::move(write));
  device().num_landings = device().landings.size();
}

void land() {
  if (C10_LIKELY(device().num_landings.load(std::memory_order_acquire) == 0)) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  const c10::impl::ExcludeDispatchKeyGuard without_python(c10::DispatchKeySet(c10::DispatchKey::Python));
  // Destroyed without the mutex: the last reference to a tensor may need Python's lock.
  std::vector<std::function<void()>> landed;
  const std::lock_guard<std::mutex> lock(device().landing_mutex);
  auto& landings = device().landings;
  for (auto& [event, write] : landings) {
    if (event.is_reached()) {
      write();
      landed.push_back(std::exchange(write, nullptr));
    }
  }
  landings.erase(
      std::remove_if(landings.begin(), landings.end(), [](const auto& each) { return each.second == nullptr; }),
      landings.end());
  device().num_landings = landings.size();
}

void run_with_gil(const std::function<void()>& function) {
  ++device().num_gil_requests;
  const auto end = c10::make_scope_exit([] { --device().num_gil_requests; });
  const pybind11::gil_scoped_acquire gil;
  function();
}

WithoutGil::WithoutGil() : thread_state_(has_gil() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (thread_state_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state_));
  }
}

void stay_stuck() {
  for (;;) {
    std::this_thread::sleep_for(kForever);
  }
}

void exit_at_interrupt() {
  constexpr int kExitCode = 128 + SIGINT;  // The shell's; no source gives the bridge's.
  std::signal(SIGINT, [](int) { _exit(kExitCode); });
}

void keep_error(const char* op, std::exception_ptr error, const std::string& line) {
  std::string message;
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& caught) {
    message = caught.what_without_backtrace();
    caught.add_context(
        c10::str(
            "raised late: the operator that failed is ",
            op,
            line.empty() ? "; HPU_SIM_STRICT=1 names its line" : ", launched at ",
            line,
            " (simulated)"));
    error = std::current_exception();
  } catch (const std::exception& caught) {
    message = caught.what();
  }
  if (is_observed()) {
    run_with_gil([&] { notify({"late_error", op, message}); });
  }
  const std::lock_guard<std::mutex> lock(device().error_mutex);
  device().error = std::move(error);
  has_kept_error = true;
}

void throw_kept_error() {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(device().error_mutex);
    error = std::exchange(device().error, nullptr);
    has_kept_error = false;
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

std::string launching_line() {
  auto* const function = locate.load();
  return function == nullptr ? "" : function();
}

}  // namespace hpu_sim
