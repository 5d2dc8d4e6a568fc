// Lazy mode: operators pile up in a graph until a mark_step or a host sync closes it, as on the bridge.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <c10/util/FunctionRef.h>

#include "observer.h"

namespace hpu_sim {

// Folds `value` into `seed`; order matters, so that a graph's hash depends on the order of its operators.
inline uint64_t hash_combine(uint64_t seed, uint64_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ULL)) * 1099511628211ULL;
}

// An operator as the graph sees it.
struct Node {
  uint64_t op;      // identity of the operator
  uint64_t inputs;  // hash of its tensor arguments' shapes and dtypes
  const std::string& name;
  c10::function_ref<std::string()> describe_inputs;  // the same for people; called only for a listener
};

// One per process, not per thread: autograd runs the backward pass of a graph in a thread of its own.
class GraphRecorder {
 public:
  // Eager mode has no graphs: nothing is recorded and every count stays 0.
  void set_lazy(bool lazy) { lazy_.store(lazy); }
  bool lazy() const { return lazy_.load(std::memory_order_relaxed); }

  void add(const Node& node);

  // Ends the graph and "runs" it; an empty graph is none. Nothing to do in eager mode.
  void close();

  struct Totals {
    int64_t graphs = 0;
    int64_t compilations = 0;    // graphs never seen before, whatever the reason
    int64_t recompilations = 0;  // known operators in a known order, with new shapes or dtypes
  };
  Totals totals() const;

  // Forgets the counts, not the compiled graphs: a card's recipe cache outlives any counter as well.
  void reset_totals();

 private:
  // For a listener: the first operator at which the graph differs from every graph before it. That operator is why the
  // graph has to be compiled, and while it is being added the Python line that called it can still be found.
  std::optional<Event> first_difference(const Node& node);

  std::atomic<bool> lazy_{false};
  mutable std::mutex mutex_;
  int64_t length_ = 0;
  uint64_t sequence_ = 0;   // of the operators so far
  uint64_t signature_ = 0;  // of the operators and their inputs so far
  std::unordered_set<uint64_t> known_sequences_;
  std::unordered_set<uint64_t> compiled_signatures_;
  Totals totals_;

  bool differs_ = false;
  std::unordered_set<uint64_t> known_prefixes_;            // every `signature_` on the way to a graph
  std::unordered_map<uint64_t, std::string> last_inputs_;  // by `sequence_`
};

GraphRecorder& graph_recorder();

}  // namespace hpu_sim
