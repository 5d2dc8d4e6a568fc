#include "graph.h"

#include "device_trace.h"

namespace hpu_sim {

void GraphRecorder::add(const Node& node) {
  std::optional<Event> difference;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++length_;
    sequence_ = hash_combine(sequence_, node.op);
    signature_ = hash_combine(hash_combine(signature_, node.op), node.inputs);
    if (is_observed()) {
      difference = first_difference(node);
    }
  }
  if (difference.has_value()) {
    notify(*difference);
  }
}

std::optional<Event> GraphRecorder::first_difference(const Node& node) {
  if (!known_prefixes_.insert(signature_).second) {
    return std::nullopt;
  }
  std::string inputs = node.describe_inputs();
  std::string& last = last_inputs_[sequence_];
  std::optional<Event> difference;
  if (!differs_) {
    differs_ = true;
    difference = Event{"divergence", node.name, last.empty() ? inputs : last + " -> " + inputs};
  }
  last = std::move(inputs);
  return difference;
}

void GraphRecorder::close() {
  const char* compiled = nullptr;
  const int64_t begin = is_traced() ? wall_clock() : 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (length_ == 0) {
      return;
    }
    ++totals_.graphs;
    if (compiled_signatures_.insert(signature_).second) {
      ++totals_.compilations;
      compiled = "compilation";
      if (!known_sequences_.insert(sequence_).second) {
        ++totals_.recompilations;
        compiled = "recompilation";
      }
    }
    length_ = 0;
    sequence_ = 0;
    signature_ = 0;
    differs_ = false;
  }
  if (compiled != nullptr && is_observed()) {
    notify({compiled, "", ""});
  }
  if (compiled != nullptr && begin != 0) {
    add_to_device_trace({"compilation", compiled, begin, wall_clock(), this_thread(), 0});
  }
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

}  // namespace hpu_sim
