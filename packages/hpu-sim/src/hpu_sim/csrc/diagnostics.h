// Notifies a Python callback of events that would be slow or fail on hardware. Without a report nobody listens, and an
// event costs one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace hpu_sim {

struct Diagnostic {
  // host_sync, cpu_fallback, cache_miss, compilation, recompilation, h2d, d2h, collective, dtype, unsupported,
  // late_error, graph_break
  const char* kind;
  std::string op;
  std::string detail;
  int64_t bytes = 0;
};

using Listener = void (*)(const Diagnostic&);

inline std::atomic<Listener> current_listener{nullptr};
inline std::atomic<uint64_t> listener_generation{0};  // number of calls of `set_listener`

inline bool is_observed() {
  return current_listener.load(std::memory_order_relaxed) != nullptr;
}

inline void notify(const Diagnostic& diagnostic) {
  if (auto* listener = current_listener.load()) {
    listener(diagnostic);
  }
}

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

// Sets the listener, or removes it with nullptr. It is called on the thread of the event, with no lock held.
inline void set_listener(Listener listener) {
  ++listener_generation;
  current_listener = listener;
}

}  // namespace hpu_sim
