// Tells a listener in Python what will hurt on a card, while it happens. Nobody listens unless a report was asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace hpu_sim {

struct Event {
  const char* kind;  // host_sync, divergence, compilation, recompilation, h2d, d2h, collective, dtype
  std::string op;
  std::string detail;
  int64_t bytes = 0;
};

using Listener = void (*)(const Event&);

inline std::atomic<Listener> current_listener{nullptr};

inline bool is_observed() {
  return current_listener.load(std::memory_order_relaxed) != nullptr;
}

inline void notify(const Event& event) {
  if (auto* listener = current_listener.load()) {
    listener(event);
  }
}

// nullptr: nobody listens. The listener is called in the thread of the event, with no lock held.
inline void set_listener(Listener listener) {
  current_listener = listener;
}

}  // namespace hpu_sim
