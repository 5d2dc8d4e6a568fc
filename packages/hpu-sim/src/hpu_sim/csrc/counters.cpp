#include "counters.h"

#include "events.h"
#include "graph.h"
#include "guard.h"

namespace hpu_sim {

void Counters::reset() {
  for (auto* counter :
       {&host_syncs, &h2d_copies, &h2d_bytes, &d2h_copies, &d2h_bytes, &collectives, &collective_bytes}) {
    counter->store(0);
  }
}

Counters& counters() {
  static Counters instance;
  return instance;
}

void record_host_sync(const std::string& op, const char* kind, torch::jit::Stack values) {
  const bool is_later = execution_mode() == ExecutionMode::kLater;
  record_host_sync(op, is_later ? current_stream()->record() : StreamEvent{}, kind, std::move(values));
}

void record_host_sync(const std::string& op, const StreamEvent& event, const char* kind, torch::jit::Stack values) {
  ++counters().host_syncs;
  graph_recorder().flush();
  if (is_heard()) {
    notify({kind, op, "", 0, nullptr, {}, std::move(values)});
  }
  wait_on_host(event);
  join_pipeline();
}

}  // namespace hpu_sim
