// Tells a listener in Python what will hurt on a card, while it happens. Nobody listens unless a report was asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace hpu_sim {

struct Event {
  const char* kind;  // host_sync, divergence, compilation, recompilation, h2d, d2h, collective, dtype, refused
  std::string op;
  std::string detail;
  int64_t bytes = 0;
};

using Listener = void (*)(const Event&);

inline std::atomic<Listener> current_listener{nullptr};
inline std::atomic<uint64_t> listeners{0};  // so far

inline bool is_observed() {
  return current_listener.load(std::memory_order_relaxed) != nullptr;
}

inline void notify(const Event& event) {
  if (auto* listener = current_listener.load()) {
    listener(event);
  }
}

// Throws what a card says to `op`, which it does not have. A listener is told first: the program may catch the error.
template <typename... Text>
[[noreturn]] void refuse(const std::string& op, const Text&... text) {
  const std::string message = c10::str(text...);
  if (is_observed()) {
    notify({"refused", op, message});
  }
  TORCH_CHECK(false, message);
}

// nullptr: nobody listens. The listener is called in the thread of the event, with no lock held.
inline void set_listener(Listener listener) {
  ++listeners;
  current_listener = listener;
}

}  // namespace hpu_sim
