// The stream of events of a recorded step: what run, report and plan share. Nobody listens otherwise, and an event then
// costs one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

namespace hpu_sim {

// Called on the thread of the event, with the operator, its arguments and its results. Kinds:
// - operator: of a kernel, a copy or a collective, after it was launched;
// - read: the host waits for one value;
// - dynamic, shapeless: a plan has no shape for the results, because they depend on data, or for want of a Meta kernel.
using Recorder =
    void (*)(const char* kind, const c10::OperatorHandle&, const torch::jit::Stack&, const torch::jit::Stack&);

inline std::atomic<Recorder> current_recorder{nullptr};

inline bool is_recorded() {
  return C10_UNLIKELY(current_recorder.load(std::memory_order_relaxed) != nullptr);
}

inline void record_event(
    const char* kind,
    const c10::OperatorHandle& op,
    const torch::jit::Stack& arguments,
    const torch::jit::Stack& results) {
  if (auto* recorder = current_recorder.load()) {
    recorder(kind, op, arguments, results);
  }
}

void set_recorder(Recorder recorder);

// A change of the device's memory: the storage's number and bytes, which are negative for a release.
using MemoryChange = std::pair<int64_t, int64_t>;

void record_memory(int64_t storage, int64_t bytes);

// Returns the changes since the last call, in their order.
std::vector<MemoryChange> take_memory_changes();

// Returns the number of a storage, which no other one has while both live. Storages of the device count from 1.
int64_t storage_number(const c10::Storage& storage);

}  // namespace hpu_sim
