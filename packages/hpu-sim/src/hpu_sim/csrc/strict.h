// Strict mode, by HPU_SIM_STRICT=1: what a card refuses fails at the line of the program, and what it does otherwise
// shows itself there. Without it, the simulator counts what strict mode would refuse.
#pragma once

#include "common.h"

namespace hpu_sim {

// Set by `set_strict`.
inline std::atomic<bool> strict_enabled{false};

inline bool is_strict() {
  return strict_enabled.load(std::memory_order_relaxed);
}

// Whether the calling thread runs FusedSDPA with recomputation, whose kernel keeps no scores.
inline thread_local bool is_fused_attention = false;

}  // namespace hpu_sim
