#include "counters.h"

#include "diagnostics.h"
#include "dtypes.h"
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

void record_host_sync(const std::string& op, const char* kind) {
  record_host_sync(op, execution_mode() == ExecutionMode::kLater ? current_stream()->record() : StreamEvent{}, kind);
}

void record_host_sync(const std::string& op, const StreamEvent& event, const char* kind) {
  ++counters().host_syncs;
  graph_recorder().flush();
  rotate_sampling_window();
  if (is_observed()) {
    notify({kind, op, ""});
  }
  wait_on_host(event);
  join_pipeline();
}

}  // namespace hpu_sim
