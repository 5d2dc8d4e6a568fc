// c10d works of hccl, and their order within a process group.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "hccl_tensors.h"
#include "stream.h"
#include "torch_compat.h"

namespace hpu_sim {

// One of gloo's works and the copying of its results to the outputs.
class PendingWork {
 public:
  // `on_completed` is called once, after gloo's work has succeeded. It may be empty.
  PendingWork(WorkPtr gloo, std::function<void()> on_completed);

  c10d::Work& gloo() { return *gloo_; }
  void wait();
  bool is_completed();

  // Calls `on_completed`, unless it was called before. Gloo's work must have succeeded.
  void finish();

 private:
  WorkPtr gloo_;
  std::function<void()> on_completed_;
  std::once_flag finish_once_;
};

using PendingWorkPtr = std::shared_ptr<PendingWork>;

// The pending collectives of a process group, in the order of their launch.
//
// A card runs them one after the other, so a program may wait for the last of several only, as DeepSpeed up to 0.19.0
// does. Gloo runs several at once.
class WorkQueue {
 public:
  // Appends a work. Removes completed works from the head, to release their tensors.
  PendingWorkPtr push(WorkPtr gloo, std::function<void()> on_completed);

  // Waits for `last` and all works before it.
  void wait(const PendingWorkPtr& last);

 private:
  // Returns the head of the queue, or null if `last` is not in the queue any more.
  PendingWorkPtr head_before(const PendingWorkPtr& last);
  void pop(const PendingWorkPtr& head);

  std::mutex mutex_;
  std::deque<PendingWorkPtr> pending_;
};

using WorkQueuePtr = std::shared_ptr<WorkQueue>;

// Starts the trace event of the collective that this thread is about to launch. To be called while a profile is
// recorded.
void start_collective_event(const char* name, int64_t bytes);

// Returns a work whose result is `outputs`, the caller's hpu tensors, instead of gloo's CPU aliases of them. Point-to-
// point works have no `queue`, because only two ranks take part.
WorkPtr make_hccl_work(
    c10d::OpType type,
    WorkPtr gloo,
    Tensors outputs,
    WorkQueuePtr queue = nullptr,
    std::function<void()> on_completed = nullptr);

// Returns a work that ends with `event`, as the bridge's: all but `wait` says that it is complete, and waiting makes
// the current stream wait. `on_waited` is called by the first wait; it may be empty.
WorkPtr make_launched_work(
    c10d::OpType type, Tensors outputs, const StreamEvent& event, std::function<void()> on_waited);

#if HPU_SIM_TORCH >= 201
// Returns one work for all of `works`, the result of coalescing.
WorkPtr make_coalesced_work(std::vector<WorkPtr> works);
#endif

}  // namespace hpu_sim
