#include "counters.h"

#include "deferred.h"
#include "diagnostics.h"
#include "dtypes.h"
#include "graph.h"

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
  ++counters().host_syncs;
  graph_recorder().flush();
  deferred_copies().run_all();
  rotate_sampling_window();
  if (is_observed()) {
    notify({kind, op, ""});
  }
}

}  // namespace hpu_sim
