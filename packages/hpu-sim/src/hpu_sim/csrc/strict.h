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

// What the simulator permits and a card does not.
enum class Lenience {
  kComplexResult,     // a result with a complex dtype
  kStridedResult,     // a result that a card returns contiguous, so that a `view` of it may fail there or here only
  kNestedCoalescing,  // startCoalescing within another one
  kStridesInPlace,    // as_strided_ in lazy mode to strides that are not contiguous
};
inline constexpr std::array kLenienceNames = {
    "complex results", "results with other strides", "nested coalescings", "changes of strides in place"};

inline std::array<std::atomic<int64_t>, kLenienceNames.size()> leniences{};

inline void count_lenience(Lenience lenience) {
  leniences[static_cast<size_t>(lenience)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hpu_sim
