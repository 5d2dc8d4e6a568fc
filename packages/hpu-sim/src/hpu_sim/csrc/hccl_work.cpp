#include "hccl_work.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "device_trace.h"
#include "released_later.h"

namespace hpu_sim {
namespace {

// Set between `start_collective_event` and the construction of the work; `start_ns` is 0 otherwise.
thread_local TraceEvent started_event{};

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

class HcclWork final : public c10d::Work {
 public:
  HcclWork(c10d::OpType type, PendingWorkPtr pending, Tensors outputs, WorkQueuePtr queue)
      : c10d::Work(-1, type), pending_(std::move(pending)), outputs_(std::move(outputs)), queue_(std::move(queue)) {
    trace_until_completed(type);
  }

  bool isCompleted() override { return pending_->is_completed(); }
  bool isSuccess() const override { return gloo().isSuccess(); }
  std::exception_ptr exception() const override { return gloo().exception(); }
  int sourceRank() const override { return gloo().sourceRank(); }
  Tensors result() override { return outputs_; }
  // Gloo's own returns before the outputs are written.
  void synchronize() override {
    if (PyGILState_Check() != 0) {
      // Torch's binding keeps Python's lock.
      const pybind11::gil_scoped_release no_gil;
      wait(kNoTimeout);
    } else {
      wait(kNoTimeout);
    }
  }
  // The bridge ignores timeouts. Gloo waits up to the timeout of its group.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (queue_) {
      queue_->wait(pending_);
    } else {
      pending_->wait();
    }
    finish_event(std::exchange(event_until_wait_, TraceEvent{}));
    return true;
  }

  FuturePtr getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    gloo().getFuture()->addCallback(
        [future, pending = pending_, outputs = outputs_](c10::ivalue::Future& completed) mutable {
          released_later().keep(future);
          try {
            completed.value();  // Throws the collective's error, if any.
            pending->finish();
          } catch (...) {
            future->setError(std::current_exception());
            return;
          }
          future->markCompleted(c10::IValue(std::move(outputs)));
        });
    return future;
  }

 private:
  static void finish_event(TraceEvent event) {
    if (event.start_ns != 0) {
      event.end_ns = now_ns();
      record_trace_event(std::move(event));
    }
  }

  // Finishes the started event when gloo completes, on one of gloo's threads. Gloo has no such callback for send and
  // recv, whose event ends when the program has waited for them.
  void trace_until_completed(c10d::OpType type) {
    const TraceEvent event = std::exchange(started_event, TraceEvent{});
    if (type == c10d::OpType::SEND || type == c10d::OpType::RECV) {
      event_until_wait_ = event;
    } else if (event.start_ns != 0) {
      gloo().getFuture()->addCallback([event](c10::ivalue::Future&) { finish_event(event); });
    }
  }

  c10d::Work& gloo() const { return pending_->gloo(); }

  PendingWorkPtr pending_;
  Tensors outputs_;
  WorkQueuePtr queue_;
  TraceEvent event_until_wait_{};
};

class LaunchedWork final : public c10d::Work {
 public:
  LaunchedWork(c10d::OpType type, Tensors outputs, StreamEvent event, std::function<void()> on_waited)
      : c10d::Work(-1, type),
        outputs_(std::move(outputs)),
        event_(std::move(event)),
        on_waited_(std::move(on_waited)) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  Tensors result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (execution_mode() == ExecutionMode::kLater) {
      current_stream()->wait_for(event_);
    }
    if (const auto on_waited = std::exchange(on_waited_, nullptr)) {
      on_waited();
    }
    return true;
  }
  FuturePtr getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  Tensors outputs_;
  StreamEvent event_;
  std::function<void()> on_waited_;
};

#if HPU_SIM_TORCH >= 201
// As the bridge's, it only has waits: it never says that it is complete, and has no future.
class LaunchedCoalescedWork final : public c10d::Work {
 public:
  explicit LaunchedCoalescedWork(std::vector<WorkPtr> works)
      : c10d::Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

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

class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works)
      : c10d::Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (auto exception = work->exception()) {
        return exception;
      }
    }
    return nullptr;
  }
  Tensors result() override {
    Tensors results;
    for (const auto& work : works_) {
      const auto outputs = work->result();
      results.insert(results.end(), outputs.begin(), outputs.end());
    }
    return results;
  }
  void synchronize() override {
    for (const auto& work : works_) {
      work->synchronize();
    }
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) {
      work->wait(timeout);
    }
    return true;
  }

  // Gloo has no futures of send and recv, so there is one of completed works only.
  FuturePtr getFuture() override {
    wait(kNoTimeout);
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(result()));
    return future;
  }

 private:
  std::vector<WorkPtr> works_;
};
#endif

}  // namespace

PendingWork::PendingWork(WorkPtr gloo, std::function<void()> on_completed)
    : gloo_(std::move(gloo)), on_completed_(std::move(on_completed)) {}

void PendingWork::wait() {
  gloo_->wait(kNoTimeout);
  finish();
}

bool PendingWork::is_completed() {
  if (!gloo_->isCompleted()) {
    return false;
  }
  if (gloo_->exception() == nullptr) {
    finish();
  }
  return true;
}

void PendingWork::finish() {
  std::call_once(finish_once_, [this] {
    if (on_completed_) {
      on_completed_();
      on_completed_ = nullptr;  // Releases the buffers.
    }
  });
}

PendingWorkPtr WorkQueue::push(WorkPtr gloo, std::function<void()> on_completed) {
  auto work = std::make_shared<PendingWork>(std::move(gloo), std::move(on_completed));
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!pending_.empty() && pending_.front()->is_completed()) {
    pending_.pop_front();
  }
  pending_.push_back(work);
  return work;
}

void WorkQueue::wait(const PendingWorkPtr& last) {
  // Waits without the lock, so that other threads can launch collectives.
  while (const auto head = head_before(last)) {
    head->wait();
    pop(head);
  }
  last->wait();
}

PendingWorkPtr WorkQueue::head_before(const PendingWorkPtr& last) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_queued = std::find(pending_.begin(), pending_.end(), last) != pending_.end();
  return is_queued ? pending_.front() : nullptr;
}

void WorkQueue::pop(const PendingWorkPtr& head) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Another thread may have waited for the same work and removed it.
  if (!pending_.empty() && pending_.front() == head) {
    pending_.pop_front();
  }
}

void start_collective_event(const char* name, int64_t bytes) {
  started_event = {"collective", name, now_ns(), 0, current_thread_id(), bytes};
}

WorkPtr make_hccl_work(
    c10d::OpType type, WorkPtr gloo, Tensors outputs, WorkQueuePtr queue, std::function<void()> on_completed) {
  released_later().release();
  auto pending = queue ? queue->push(std::move(gloo), std::move(on_completed))
                       : std::make_shared<PendingWork>(std::move(gloo), std::move(on_completed));
  return c10::make_intrusive<HcclWork>(type, std::move(pending), std::move(outputs), std::move(queue));
}

WorkPtr make_launched_work(
    c10d::OpType type, Tensors outputs, const StreamEvent& event, std::function<void()> on_waited) {
  return c10::make_intrusive<LaunchedWork>(type, std::move(outputs), event, std::move(on_waited));
}

#if HPU_SIM_TORCH >= 201
WorkPtr make_coalesced_work(std::vector<WorkPtr> works) {
  if (execution_mode() != ExecutionMode::kNow) {
    return c10::make_intrusive<LaunchedCoalescedWork>(std::move(works));
  }
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}
#endif

}  // namespace hpu_sim
