#include "graph.h"
#include "events.h"

namespace hpu_sim {
namespace {

// About 100 MB. A program whose every graph is new must not fill the host's memory: later causes are not reported.
constexpr size_t kMaxPrefixes = 1'000'000;

}  // namespace

void GraphRecorder::add_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!lazy()) {
    return;
  }
  const uint64_t op_hash = std::hash<c10::OperatorName>()(op.operator_name());
  const uint64_t argument_hash = hash_arguments(op, arguments);
  std::optional<Event> miss;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_ops_;
    op_hash_ = hash_combine(op_hash_, op_hash);
    graph_hash_ = hash_combine(hash_combine(graph_hash_, op_hash), argument_hash);
    if (is_observed()) {
      miss = detect_cache_miss(op, arguments);
    }
  }
  if (miss.has_value()) {
    notify(*miss);
  }
}

std::optional<Event> GraphRecorder::detect_cache_miss(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (known_prefixes_.size() >= kMaxPrefixes || !known_prefixes_.insert(graph_hash_).second) {
    return std::nullopt;
  }
  std::string text = describe_arguments(op, arguments);
  std::string& last = last_arguments_[op_hash_];
  std::optional<Event> miss;
  if (!has_reported_miss_) {
    has_reported_miss_ = true;
    miss = Event{"cache_miss", op.operator_name().name, last.empty() ? text : last + " -> " + text};
  }
  last = std::move(text);
  return miss;
}

void GraphRecorder::flush() {
  const char* compiled = nullptr;
  const int64_t start_ns = is_traced() ? now_ns() : 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (num_ops_ == 0) {
      return;
    }
    count(Tally::kGraph);
    if (recipe_cache_.insert(graph_hash_).second) {
      count(Tally::kCompilation);
      compiled = "compilation";
      if (!known_op_hashes_.insert(op_hash_).second) {
        count(Tally::kRecompilation);
        compiled = "recompilation";
      }
    }
    num_ops_ = 0;
    op_hash_ = 0;
    graph_hash_ = 0;
    has_reported_miss_ = false;
  }
  if (compiled != nullptr && is_observed()) {
    notify({compiled, "", ""});
  }
  if (compiled != nullptr && start_ns != 0) {
    record_trace_event({"compilation", compiled, start_ns, now_ns(), current_thread_id(), 0});
  }
}

GraphRecorder& graph_recorder() {
  // Never destroyed: threads of autograd may add operators while the process exits.
  static auto* instance = new GraphRecorder();
  return *instance;
}

void check_not_lazy(const std::string& op, const std::string& alternative) {
  if (graph_recorder().lazy()) {
    throw_unsupported(
        op,
        "This function should not be called in lazy flow: ",
        op,
        " of hpu tensors; ",
        alternative,
        ", or set PT_HPU_LAZY_MODE=0.");
  }
}

}  // namespace hpu_sim
