// The stream of events of a process, which run, report, profile and plan share. Python listens: to what would be slow
// or fail on hardware, or to every operator as well. Nobody does by default, and an event then costs one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace hpu_sim {

struct Event {
  // Where operators are recorded: operator, after a kernel was launched; dynamic and shapeless, where a plan has no
  // shape for the results, because they depend on data, or for want of a Meta kernel. For diagnoses: cpu_fallback,
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

constexpr int kDiagnoses = 1;
constexpr int kOperators = 2;

inline std::atomic<Listener> current_listener{nullptr};
inline std::atomic<int> listening{0};
inline std::atomic<uint64_t> listener_generation{0};  // number of times that somebody began to listen for diagnoses

// Whether anybody listens for events of these sorts.
inline bool is_heard(int sorts = kDiagnoses | kOperators) {
  return C10_UNLIKELY((listening.load(std::memory_order_relaxed) & sorts) != 0);
}

inline bool is_observed() {
  return is_heard(kDiagnoses);
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

}  // namespace hpu_sim
