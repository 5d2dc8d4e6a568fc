// The stream of events of a process, which run, report, profile and plan share. Python listens: to what would be slow
// or fail on hardware, or to every operator as well. Nobody does by default, and an event then costs one atomic load.
#pragma once

#include "common.h"
#include "stream.h"

namespace hpu_sim {

struct Event {
  // Where operators are recorded: operator, after a kernel was launched; dynamic and shapeless, where a plan has no
  // shape for the results, because they depend on data, or for want of a Meta kernel; assumed, with the way in which a
  // plan takes results that depend on data. For diagnostics: cpu_fallback,
  // cache_miss, compilation, recompilation, dtype, unsupported, late_error. For both: host_sync, with the value in a
  // plan; h2d, d2h, collective.
  const char* kind;
  std::string name;
  std::string detail = "";
  int64_t bytes = 0;
  // Only where operators are recorded.
  const c10::OperatorHandle* op = nullptr;
  torch::jit::Stack arguments = {};
  torch::jit::Stack results = {};
};

using Listener = void (*)(const Event&);

constexpr int kDiagnostics = 1;
constexpr int kOperators = 2;
constexpr int kTimes = 4;

inline std::atomic<Listener> current_listener{nullptr};
inline std::atomic<int> listening{0};

// Whether anybody listens for events of these sorts.
inline bool is_heard(int sorts = kDiagnostics | kOperators) {
  return C10_UNLIKELY((listening.load(std::memory_order_relaxed) & sorts) != 0);
}

inline bool is_observed() {
  return is_heard(kDiagnostics);
}

// Whether events have their operators, arguments and results.
inline bool is_recorded() {
  return is_heard(kOperators);
}

// Calls the listener on this thread. The caller holds no lock.
inline void notify(const Event& event) {
  if (auto* listener = current_listener.load()) {
    listener(event);
  }
}

void set_listener(Listener listener, int sorts);

// What is counted since the start of the process, whether or not anybody listens.
enum class Tally : uint8_t {
  kHostSync,
  kH2d,
  kD2h,
  kCollective,
  kGraph,
  kCompilation,    // recipe cache misses
  kRecompilation,  // those of a known sequence of operators with new arguments
  // What the simulator permits and a card does not:
  kComplexResult,  // a result with a complex dtype
  kStridedResult,  // a result that a card returns contiguous, so that a `view` of it may fail there or here only
};
inline constexpr std::array kTallyNames = {
    "host_syncs",
    "h2d_copies",
    "d2h_copies",
    "collectives",
    "graphs",
    "compilations",
    "recompilations",
    "complex results",
    "results with other strides"};

struct CountAndBytes {
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> bytes{0};
};
inline std::array<CountAndBytes, kTallyNames.size()> tallies{};

inline void count(Tally tally, int64_t bytes = 0) {
  auto& counted = tallies[static_cast<size_t>(tally)];
  counted.count.fetch_add(1, std::memory_order_relaxed);
  counted.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

// Records a host-device synchronization caused by `op`, as an event of this kind, with what is known of the values that
// the host reads. In lazy mode it flushes the graph. Blocks until the current stream has run, and raises a late error.
void record_host_sync(const std::string& op, const char* kind = "host_sync", torch::jit::Stack values = {});

// The same without the wait, before one that holds a mutex.
void announce_host_sync(const std::string& op, const char* kind = "host_sync", torch::jit::Stack values = {});

// Throws the bridge's error for an operator or argument that the device does not support. The listener is notified
// first, because the program may catch the error.
template <typename... Text>
[[noreturn]] void throw_unsupported(const std::string& op, const Text&... text) {
  const std::string message = c10::str(text...);
  if (is_observed()) {
    notify({"unsupported", op, message});
  }
  TORCH_CHECK(false, message);
}

// A change of the device's memory: the storage's number and bytes, which are negative for a release.
using MemoryChange = std::pair<int64_t, int64_t>;

void record_memory(int64_t storage, int64_t bytes);

// Returns the changes since the last call, in their order, while operators are recorded.
std::vector<MemoryChange> take_memory_changes();

// Returns the number of a storage, which no other one has while both live. Storages of the device count from 1.
int64_t storage_number(const c10::Storage& storage);

// Work of the device with its measured times: each kernel, copy, collective and compilation. Threads of the device have
// no Python, so a profile takes them at its end.
struct TraceEvent {
  const char* kind;   // a literal: kernel, h2d, d2h, d2d, collective, compilation
  std::string name;   // a copy, because an operator may be deregistered while the recording lasts
  int64_t start_ns;   // since the epoch, as in torch's traces
  int64_t end_ns;     // as `start_ns`
  int64_t thread_id;  // the system's id of the launching thread, as in torch's traces
  int64_t bytes;
};

inline bool is_traced() {
  return is_heard(kTimes);
}

int64_t now_ns();
int64_t current_thread_id();

// Starts a recording and drops the events of an earlier one. There is one recording at a time, as torch has one
// profiler at a time.
void start_device_trace();

// Stops the recording, if any, and returns its events.
std::vector<TraceEvent> stop_device_trace();

void record_trace_event(TraceEvent event);

// Records the time between its construction and its destruction.
class ScopedTraceEvent {
 public:
  // `name` must outlive the object. `thread` launched the event; 0 for this one.
  ScopedTraceEvent(const char* kind, const char* name, int64_t bytes = 0, int64_t thread = 0)
      : kind_(kind), name_(name), bytes_(bytes), thread_(thread) {
    if (is_traced()) {
      start_ns_ = now_ns();
    }
  }
  ~ScopedTraceEvent() {
    if (start_ns_ != 0) {
      record_trace_event({kind_, name_, start_ns_, now_ns(), thread_ == 0 ? current_thread_id() : thread_, bytes_});
    }
  }
  ScopedTraceEvent(const ScopedTraceEvent&) = delete;
  ScopedTraceEvent& operator=(const ScopedTraceEvent&) = delete;

 private:
  const char* kind_;
  const char* name_;
  int64_t bytes_;
  int64_t thread_;
  int64_t start_ns_ = 0;
};

}  // namespace hpu_sim
