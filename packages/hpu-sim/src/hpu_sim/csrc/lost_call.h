// Calls of operators that never run, because their queue is broken (pipeline.h) or has no thread (a forked child).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace hpu_sim {

// Replaces the CPU arguments by what the program gets of such a call: written arguments as they are, and new tensors
// whose memory nobody writes. Returns false, and leaves the arguments, if the call has no shapes without running: it
// fails the checks of its arguments, or its shapes depend on data.
bool lose_call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Set in a forked child, which has none of its parent's threads. The bridge does not notice; see `acquire_device`.
inline std::atomic<bool> is_without_threads{false};

}  // namespace hpu_sim
