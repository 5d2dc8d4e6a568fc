// c10d works of hccl.
#pragma once

#include "common.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "hccl_tensors.h"
#include "stream.h"

namespace hpu_sim {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// A collective, of which gloo's part runs in a stream.
class RunningCollective {
 public:
  // `raises` makes errors those of the collective's work. Otherwise they are those of the pipeline.
  explicit RunningCollective(bool raises) : raises_(raises) {}

  // Runs a part of the collective, unless an earlier one has failed.
  void run(const std::function<void()>& part);

  // Completes the futures. To be called once.
  void finish();

  void complete(const FuturePtr& future, Tensors outputs);
  bool raises() const { return raises_; }
  std::exception_ptr error() const;

  WorkPtr gloo;
  std::function<void()> on_completed;
  int64_t start_ns = 0;  // 0 if nobody records times

 private:
  void complete_now(const FuturePtr& future, c10::IValue outputs) const;

  bool raises_;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  bool is_finished_ = false;
  std::vector<std::pair<FuturePtr, c10::IValue>> futures_;
};

// Returns a work whose result is `outputs`, the caller's hpu tensors, and that ends with `event`. As the bridge's, all
// but `wait` says that it is complete, and waiting makes the current stream wait; `on_waited`, which may be empty, is
// called by the first wait. If kernels run now, it says the truth, and waiting holds the host; `running`, which is null
// for a collective that never runs, has its error then.
WorkPtr make_hccl_work(
    c10d::OpType type,
    Tensors outputs,
    const StreamEvent& event,
    std::shared_ptr<RunningCollective> running = nullptr,
    std::function<void()> on_waited = nullptr);

#if HPU_SIM_TORCH >= 201
// Returns one work for all of `works`, the result of coalescing.
WorkPtr make_coalesced_work(std::vector<WorkPtr> works);
#endif

}  // namespace hpu_sim
