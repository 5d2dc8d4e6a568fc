#include "counters.h"

#include "diagnostics.h"
#include "dtypes.h"
#include "graph.h"
#include "guard.h"
#include "pipeline.h"

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
  record_host_sync(op, is_async() ? deferred_copies().clock_of(current_stream_id()) : StreamClock{}, kind);
}

void record_host_sync(const std::string& op, const StreamClock& clock, const char* kind) {
  ++counters().host_syncs;
  graph_recorder().flush();
  deferred_copies().run_up_to(clock);
  rotate_sampling_window();
  if (is_observed()) {
    notify({kind, op, ""});
  }
  pipeline().join();
}

}  // namespace hpu_sim
