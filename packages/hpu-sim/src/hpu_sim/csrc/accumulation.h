// Sums of products as a card's matrix engine rounds them, by HPU_SIM_NUMERICS=1. The rules are those of
// `hpu_sim.device.accumulation`.
#pragma once

#include "common.h"

namespace hpu_sim {

// How an engine sums the products of a row and a column.
struct Accumulation {
  std::string dtype;
  int64_t tree;          // products that are added exactly before they are rounded to float32
  int64_t accumulators;  // float32 sums that take turns, and are added pairwise at the end
  bool truncates;        // whether rounding is toward zero, else to nearest
};

// Sets tree, accumulators and rounding by dtype: "float8", "bfloat16", "float16" or "float32". Without an entry, sums
// are the CPU's.
void set_accumulation(const std::map<std::string, std::tuple<int64_t, int64_t, bool>>& rules);

// Returns whether any dtype has a rule. Reductions of collectives in 16 bits are then rounded once.
bool has_accumulation();

// Whether products of the calling thread are of float8, whose numbers its operators have as float32.
inline thread_local bool is_float8_product = false;

// Returns the rule for a call; null if it is no product of matrices, or its dtype has none.
const Accumulation* find_accumulation(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Runs a product by `run`, then gives its result the numbers of the rule, and keeps how far these are from it.
void run_accumulated(
    const Accumulation& rule,
    const c10::OperatorHandle& op,
    torch::jit::Stack& stack,
    const std::function<void()>& run);

// Returns calls, and the largest distance to the CPU's result relative to it, by operator and dtype.
std::map<std::string, std::pair<int64_t, double>> accumulation_distances();

}  // namespace hpu_sim
