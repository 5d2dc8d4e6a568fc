// Lazy mode: operators accumulate in a graph, which mark_step or a host-device synchronization flushes.
#pragma once

#include "common.h"
#include "events.h"
#include "fork_safety.h"
#include "recipe_key.h"

namespace hpu_sim {

// The graph and the recipe cache of the process. Not per thread, because autograd adds the backward pass of a graph
// from its own thread.
class GraphRecorder {
 public:
  // In eager mode nothing is recorded.
  void set_lazy(bool lazy) { lazy_.store(lazy); }
  bool lazy() const { return lazy_.load(std::memory_order_relaxed); }

  // Adds the call of an operator, in lazy mode.
  void add_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  // Ends the graph and compiles it on a recipe cache miss. An empty graph does not count.
  void flush();

 private:
  // Returns a diagnostic for the first operator at which the graph differs from all earlier ones: the cause of the
  // recipe cache miss. Called while the operator is added, because its Python line is on the stack only then.
  std::optional<Event> detect_cache_miss(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  std::atomic<bool> lazy_{false};
  ForkSafeMutex mutex_;
  int64_t num_ops_ = 0;
  uint64_t op_hash_ = 0;     // of the graph's operators
  uint64_t graph_hash_ = 0;  // of the graph's operators and their arguments: the recipe's key
  std::unordered_set<uint64_t> known_op_hashes_;
  std::unordered_set<uint64_t> recipe_cache_;

  bool has_reported_miss_ = false;
  std::unordered_set<uint64_t> known_prefixes_;               // every value that `graph_hash_` has had
  std::unordered_map<uint64_t, std::string> last_arguments_;  // by `op_hash_`
};

GraphRecorder& graph_recorder();

// Throws the bridge's error for a function that it has in eager mode only.
void check_not_lazy(const std::string& op, const std::string& alternative);

}  // namespace hpu_sim
