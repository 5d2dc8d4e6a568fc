// Errors of the bridge's eager pipeline, with HPU_SIM_ASYNC=1 in eager mode.
//
// The calling thread checks an operator's arguments. Then the operator passes three threads: lowering, compilation and
// execution. A thread keeps the error of its operator, and raises it in the thread before when that one enqueues the
// next operator, which is lost. The error of an execution thus reaches the program in the third operator after it, or
// where the host waits. The simulator says which operator failed, and which line launched it; a card cannot.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "deferred.h"
#include "fork_safety.h"

namespace hpu_sim {

class Pipeline {
 public:
  static bool is_on();

  // Keeps an error of the execution of `op`. The newest error replaces an older one.
  void fail(const std::string& op, std::exception_ptr error);

  // Enqueues an operator. Returns whether it is lost. Throws the error that has reached the calling thread.
  bool enqueue() { return C10_UNLIKELY(has_error_.load(std::memory_order_relaxed)) && advance(); }

  // Throws the kept error, if any: the host waits for all operators.
  void join() {
    if (C10_UNLIKELY(has_error_.load(std::memory_order_relaxed))) {
      throw_error();
    }
  }

 private:
  bool advance();
  void throw_error();

  ForkSafeMutex mutex_;
  std::exception_ptr error_;
  int stages_left_ = 0;
  std::atomic<bool> has_error_{false};
};

Pipeline& pipeline();

// Sets the function that returns the line of the program that this thread runs.
void set_locator(std::string (*locate)());

}  // namespace hpu_sim
