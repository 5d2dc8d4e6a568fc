// c10d works of hccl.
#pragma once

#include "common.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "events.h"
#include "hccl.h"
#include "hccl_tensors.h"
#include "stream.h"

namespace hpu_sim {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// What a collective has started: gloo's work, and what is left to do after it.
struct Started {
  WorkPtr gloo;
  std::function<void()> on_completed = nullptr;
};
using Start = std::function<Started(c10d::Backend&)>;

// A collective, whose parts run in streams. None runs after one that has failed.
class RunningCollective : public std::enable_shared_from_this<RunningCollective> {
 public:
  // `raises` makes errors those of the collective's work. Otherwise they are those of the pipeline. `name` must outlive
  // the object.
  RunningCollective(std::shared_ptr<Communicator> communicator, const char* name, bool raises)
      : communicator_(std::move(communicator)), name_(name), raises_(raises), thread_(current_thread_id()) {}

  // Appends a part to a stream.
  StreamEvent push(Stream& stream, WorkKind kind, std::function<void(RunningCollective&)> part);

  // The parts, in their order. `meet` connects the ranks, and compares what they call; see `compare_ranks`. `end` takes
  // the bytes for a profile, which has no barriers.
  void meet(const std::string& key, const std::string& what);
  void start(const Start& start);
  void wait();
  void end(std::optional<int64_t> bytes);

  // Completes the futures. To be called once, after the last part.
  void finish();

  void complete(const FuturePtr& future, Tensors outputs);
  std::exception_ptr error() const;

 private:
  void complete_now(const FuturePtr& future, c10::IValue outputs) const;
  void begin();
  void wait_for(c10d::Work& gloo) const;

  std::shared_ptr<Communicator> communicator_;
  const char* name_;
  bool raises_;
  int64_t thread_;
  Started started_;
  int64_t start_ns_ = 0;  // 0 if nobody records times
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  bool is_finished_ = false;
  std::vector<std::pair<FuturePtr, c10::IValue>> futures_;
};

// Returns a work whose result is `outputs`, the caller's hpu tensors, and that ends with `event`. As the bridge's, all
// but `wait` says that it is complete, and waiting makes the current stream wait. If kernels run now, it says the
// truth, and waiting holds the host; `running` has its error then, and is null otherwise.
WorkPtr make_hccl_work(
    c10d::OpType type, Tensors outputs, const StreamEvent& event, std::shared_ptr<RunningCollective> running = nullptr);

#if HPU_SIM_TORCH >= 201
// Returns one work for all of `works`, the result of coalescing.
WorkPtr make_coalesced_work(std::vector<WorkPtr> works);
#endif

}  // namespace hpu_sim
