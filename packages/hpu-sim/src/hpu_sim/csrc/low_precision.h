// Operators that torch's CPU lacks for float16, bfloat16 or float8.
#pragma once

#include "common.h"

namespace hpu_sim {

// Returns whether the dtype is float16, bfloat16 or float8.
bool is_low_precision(c10::ScalarType dtype);

// Runs the CPU kernel of `op`. If it lacks the dtype of its low-precision arguments, and a card does not, runs it on
// float32 copies of them and rounds each result once, as a card does.
void redispatch_low_precision(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace hpu_sim
