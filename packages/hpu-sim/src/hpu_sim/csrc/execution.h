// When the kernel of an operator runs. The metadata of its results comes first; see `CpuFallbackCall::compute`.
#pragma once

#include "common.h"

namespace hpu_sim {

enum class ExecutionMode : uint8_t {
  kNow,    // on the calling thread, before its call returns
  kLater,  // as asynchronous as a card
};

inline std::atomic<ExecutionMode> current_execution_mode{ExecutionMode::kNow};

inline ExecutionMode execution_mode() {
  return current_execution_mode.load(std::memory_order_relaxed);
}

inline std::atomic<bool> planning_enabled{false};

// Returns whether kernels never run: in a plan, see planning.h.
inline bool is_planning() {
  return C10_UNLIKELY(planning_enabled.load(std::memory_order_relaxed));
}

// What a Meta kernel has made of a call.
struct InferredCall {
  std::vector<at::Tensor> metas;  // of the given tensors, after the call
  torch::jit::Stack results;      // whose tensors are metas, views of them, or new

  // Returns the position in `metas` of the one that is, or shares the memory of, a result; -1 for none.
  int find(const at::Tensor& result, bool shares_memory) const;

  // Returns the results with memory: tensors of `given`, which has one per meta, views of these, and new tensors over
  // the storage that `make_storage` returns for one of a meta.
  torch::jit::Stack with_memory(
      const std::vector<at::Tensor>& given,
      c10::DispatchKey key,
      const std::function<c10::Storage(const at::Tensor&)>& make_storage) const;
};

// Runs the Meta kernel of an operator, and with it the operator's checks, unless a call like this one has passed them.
// Many of torch's Meta kernels are in Python, and take longer than the kernel of a small tensor. Returns in `given` the
// distinct tensors of the call that have memory, numbers of the program excepted.
std::shared_ptr<const InferredCall> infer(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, std::vector<at::Tensor>& given);

// Replaces the CPU arguments of an operator by its results, without running its CPU kernel: written arguments as they
// are, and new tensors whose memory nobody has written. Returns false, and leaves the arguments, if the operator has no
// Meta kernel, its arguments fail the checks of that kernel, or its shapes depend on data.
bool infer_results(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace hpu_sim
