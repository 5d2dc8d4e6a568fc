#include "hccl_work.h"

#include "released_later.h"

namespace hpu_sim {
namespace {

FuturePtr make_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

class HcclWork final : public c10d::Work {
 public:
  HcclWork(
      c10d::OpType type,
      Tensors outputs,
      StreamEvent event,
      std::shared_ptr<RunningCollective> running,
      std::function<void()> on_waited)
      : c10d::Work(-1, type),
        outputs_(std::move(outputs)),
        event_(std::move(event)),
        running_(std::move(running)),
        on_waited_(std::move(on_waited)) {}

  bool isCompleted() override { return !raises() || event_.is_reached(); }
  bool isSuccess() const override { return exception() == nullptr; }
  std::exception_ptr exception() const override { return raises() ? running_->error() : nullptr; }
  Tensors result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  // The bridge ignores timeouts. Gloo waits up to the timeout of its group.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (raises()) {
      wait_on_host(event_);
      if (const auto error = running_->error()) {
        std::rethrow_exception(error);
      }
    } else if (execution_mode() == ExecutionMode::kLater) {
      current_stream()->wait_for(event_);
    }
    if (const auto on_waited = std::exchange(on_waited_, nullptr)) {
      on_waited();
    }
    return true;
  }
  FuturePtr getFuture() override {
    auto future = make_future();
    if (raises()) {
      running_->complete(future, outputs_);
    } else {
      future->markCompleted(c10::IValue(outputs_));
    }
    return future;
  }

 private:
  bool raises() const { return running_ != nullptr && running_->raises(); }

  Tensors outputs_;
  StreamEvent event_;
  std::shared_ptr<RunningCollective> running_;
  std::function<void()> on_waited_;
};

#if HPU_SIM_TORCH >= 201
// As the bridge's, it only has waits: it never says that it is complete, and has no future. If kernels run now, it has.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works)
      : c10d::Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return execution_mode() == ExecutionMode::kNow &&
           std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isCompleted(); });
  }
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
  FuturePtr getFuture() override {
    if (execution_mode() != ExecutionMode::kNow) {
      return c10d::Work::getFuture();
    }
    wait(kNoTimeout);
    auto future = make_future();
    future->markCompleted(c10::IValue(result()));
    return future;
  }

 private:
  std::vector<WorkPtr> works_;
};
#endif

}  // namespace

void RunningCollective::run(const std::function<void()>& part) {
  if (error() != nullptr) {
    return;
  }
  try {
    part();
  } catch (...) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      error_ = std::current_exception();
    }
    if (!raises_) {
      throw;
    }
  }
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

std::exception_ptr RunningCollective::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void RunningCollective::complete_now(const FuturePtr& future, c10::IValue outputs) const {
  if (const auto failure = error()) {
    future->setError(failure);
  } else {
    future->markCompleted(std::move(outputs));
  }
}

WorkPtr make_hccl_work(
    c10d::OpType type,
    Tensors outputs,
    const StreamEvent& event,
    std::shared_ptr<RunningCollective> running,
    std::function<void()> on_waited) {
  destroy_released();
  return c10::make_intrusive<HcclWork>(type, std::move(outputs), event, std::move(running), std::move(on_waited));
}

#if HPU_SIM_TORCH >= 201
WorkPtr make_coalesced_work(std::vector<WorkPtr> works) {
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}
#endif

}  // namespace hpu_sim
