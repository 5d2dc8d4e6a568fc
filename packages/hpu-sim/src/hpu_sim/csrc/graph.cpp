#include "graph.h"

namespace hpu_sim {

void GraphRecorder::add(uint64_t op, uint64_t inputs) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++length_;
  sequence_ = hash_combine(sequence_, op);
  signature_ = hash_combine(hash_combine(signature_, op), inputs);
}

void GraphRecorder::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (length_ == 0) {
    return;
  }
  ++totals_.graphs;
  if (compiled_signatures_.insert(signature_).second) {
    ++totals_.compilations;
    if (!known_sequences_.insert(sequence_).second) {
      ++totals_.recompilations;
    }
  }
  length_ = 0;
  sequence_ = 0;
  signature_ = 0;
}

GraphRecorder::Totals GraphRecorder::totals() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return totals_;
}

void GraphRecorder::reset_totals() {
  std::lock_guard<std::mutex> lock(mutex_);
  totals_ = Totals{};
}

GraphRecorder& graph_recorder() {
  static GraphRecorder instance;
  return instance;
}

} // namespace hpu_sim
