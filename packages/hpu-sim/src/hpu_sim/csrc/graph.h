// Lazy mode: operators pile up in a graph until a mark_step or a host sync closes it, as on the bridge.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace hpu_sim {

// Folds `value` into `seed`; order matters, so that a graph's hash depends on the order of its operators.
inline uint64_t hash_combine(uint64_t seed, uint64_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ULL)) * 1099511628211ULL;
}

// One per process, not per thread: autograd runs the backward pass of a graph in a thread of its own.
class GraphRecorder {
 public:
  // Eager mode has no graphs: nothing is recorded and every count stays 0.
  void set_lazy(bool lazy) { lazy_.store(lazy); }
  bool lazy() const { return lazy_.load(std::memory_order_relaxed); }

  // Adds an operator; `inputs` is a hash of its tensor arguments' shapes and dtypes.
  void add(uint64_t op, uint64_t inputs);

  // Ends the graph and "runs" it; an empty graph is none. Nothing to do in eager mode.
  void close();

  struct Totals {
    int64_t graphs = 0;
    int64_t compilations = 0; // graphs never seen before, whatever the reason
    int64_t recompilations = 0; // known operators in a known order, with new shapes or dtypes
  };
  Totals totals() const;

  // Forgets the counts, not the compiled graphs: a card's recipe cache outlives any counter as well.
  void reset_totals();

 private:
  std::atomic<bool> lazy_{false};
  mutable std::mutex mutex_;
  int64_t length_ = 0;
  uint64_t sequence_ = 0;
  uint64_t signature_ = 0;
  std::unordered_set<uint64_t> known_sequences_;
  std::unordered_set<uint64_t> compiled_signatures_;
  Totals totals_;
};

GraphRecorder& graph_recorder();

} // namespace hpu_sim
