#include "hccl_work.h"

#include <ATen/record_function.h>

#include "released_later.h"

namespace hpu_sim {
namespace {

FuturePtr make_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

class HcclWork final : public c10d::Work {
 public:
  HcclWork(c10d::OpType type, Tensors outputs, StreamEvent event, std::shared_ptr<RunningCollective> running)
      : c10d::Work(-1, type), outputs_(std::move(outputs)), event_(std::move(event)), running_(std::move(running)) {}

  bool isCompleted() override { return running_ == nullptr || event_.is_reached(); }
  bool isSuccess() const override { return exception() == nullptr; }
  std::exception_ptr exception() const override { return running_ == nullptr ? nullptr : running_->error(); }
  Tensors result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  // The bridge ignores timeouts. Gloo waits up to the timeout of its group.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (running_ != nullptr) {
      wait_on_host(event_);
      if (const auto error = running_->error()) {
        std::rethrow_exception(error);
      }
    } else if (execution_mode() == ExecutionMode::kLater) {
      current_stream()->wait_for(event_);
    }
    return true;
  }
  FuturePtr getFuture() override {
    auto future = make_future();
    if (running_ != nullptr) {
      running_->complete(future, outputs_);
    } else {
      future->markCompleted(c10::IValue(outputs_));
    }
    return future;
  }

 private:
  Tensors outputs_;
  StreamEvent event_;
  std::shared_ptr<RunningCollective> running_;
};

#if HPU_SIM_TORCH >= 201
// As the bridge's, it only has waits: it never says that it is complete, and has no future.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works)
      : c10d::Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override { return false; }
  Tensors result() override {
    TensorLists results;
    for (const auto& work : works_) {
      results.push_back(work->result());
    }
    return concat_lists(results);
  }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) {
      work->wait(timeout);
    }
    return true;
  }

 private:
  std::vector<WorkPtr> works_;
};
#endif

}  // namespace

StreamEvent RunningCollective::push(Stream& stream, WorkKind kind, std::function<void(RunningCollective&)> part) {
  const auto run = [self = shared_from_this(), part = std::move(part)] {
    if (self->error() != nullptr) {
      return;
    }
    try {
      const c10::InferenceMode off(false);
      // A recorded work of gloo ends on one of gloo's threads. If that is after the end of the profile, torch writes to
      // an event that it has freed. The bridge's collectives have no such record either.
      const at::DisableRecordFunctionGuard unrecorded;
      part(*self);
    } catch (...) {
      {
        const std::lock_guard<std::mutex> lock(self->mutex_);
        self->error_ = std::current_exception();
      }
      if (!self->raises_) {
        throw;
      }
    }
  };
  return stream.push(name_, run, kind);
}

// Called by a part that waits for the other ranks, which belongs to the collective's time.
void RunningCollective::begin() {
  if (start_ns_ == 0 && is_traced()) {
    start_ns_ = now_ns();
  }
}

void RunningCollective::meet(const std::string& key, const std::string& what) {
  auto& gloo = communicator_->gloo();
  if (!key.empty()) {
    begin();
    compare_ranks(gloo, key, what, [this](c10d::Work& work) { wait_for(work); });
  }
}

void RunningCollective::start(const Start& start) {
  begin();
  started_ = start(communicator_->gloo());
}

void RunningCollective::wait() {
  wait_for(*started_.gloo);
}

void RunningCollective::end(std::optional<int64_t> bytes) {
  if (started_.on_completed) {
    started_.on_completed();
  }
  if (start_ns_ != 0 && bytes.has_value()) {
    record_trace_event({"collective", name_, start_ns_, now_ns(), thread_, *bytes});
  }
  started_ = Started{};
}

void RunningCollective::wait_for(c10d::Work& gloo) const {
  try {
    gloo.wait(kNoTimeout);
  } catch (const std::exception&) {
    if (!raises_) {
      stay_stuck();  // HCCL only logs that the connection to a rank has ended.
    }
    throw;
  }
}

std::exception_ptr RunningCollective::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void RunningCollective::finish() {
  std::vector<std::pair<FuturePtr, c10::IValue>> futures;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_finished_ = true;
    futures.swap(futures_);
  }
  for (auto& [future, outputs] : futures) {
    release_later(future);
    complete_now(future, std::move(outputs));
  }
}

void RunningCollective::complete(const FuturePtr& future, Tensors outputs) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_finished_) {
      futures_.emplace_back(future, std::move(outputs));
      return;
    }
  }
  complete_now(future, std::move(outputs));
}

void RunningCollective::complete_now(const FuturePtr& future, c10::IValue outputs) const {
  if (const auto failure = error()) {
    future->setError(failure);
  } else {
    future->markCompleted(std::move(outputs));
  }
}

WorkPtr make_hccl_work(
    c10d::OpType type, Tensors outputs, const StreamEvent& event, std::shared_ptr<RunningCollective> running) {
  destroy_released();
  return c10::make_intrusive<HcclWork>(type, std::move(outputs), event, std::move(running));
}

#if HPU_SIM_TORCH >= 201
WorkPtr make_coalesced_work(std::vector<WorkPtr> works) {
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}
#endif

}  // namespace hpu_sim
