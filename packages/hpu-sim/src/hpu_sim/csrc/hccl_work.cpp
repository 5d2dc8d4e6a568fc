#include "hccl_work.h"

#include <algorithm>
#include <utility>

#include "device_trace.h"

namespace hpu_sim {
namespace {

// Begin 0: none.
thread_local Interval collective_in_making{};

class HcclWork final : public c10d::Work {
 public:
  HcclWork(c10d::OpType type, CollectivePtr collective, Tensors outputs, OrderPtr order)
      : c10d::Work(-1, type),
        collective_(std::move(collective)),
        outputs_(std::move(outputs)),
        order_(std::move(order)) {
    trace_until_done(type);
  }

  bool isCompleted() override { return gloo().isCompleted(); }
  bool isSuccess() const override { return gloo().isSuccess(); }
  std::exception_ptr exception() const override { return gloo().exception(); }
  int sourceRank() const override { return gloo().sourceRank(); }
  Tensors result() override { return outputs_; }
  void synchronize() override { gloo().synchronize(); }
  // The bridge ignores timeouts: it waits as long as it takes, and so does gloo, up to its group's own half hour.
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (order_) {
      order_->wait(collective_);
    } else {
      collective_->wait();
    }
    end(std::exchange(waited_for_, Interval{}));
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return gloo().getFuture()->then(
        [outputs = outputs_](c10::ivalue::Future& done) {
          done.value();  // Throws the collective's error, if it failed.
          return c10::IValue(outputs);
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  static void end(Interval interval) {
    if (interval.begin != 0) {
      interval.end = wall_clock();
      add_to_device_trace(interval);
    }
  }

  // Ends the interval of the collective in making: when gloo is done, in one of gloo's threads, or, since gloo cannot
  // be asked to tell the end of sending and receiving, when the program has waited for that.
  void trace_until_done(c10d::OpType type) {
    const Interval interval = std::exchange(collective_in_making, Interval{});
    if (type == c10d::OpType::SEND || type == c10d::OpType::RECV) {
      waited_for_ = interval;
    } else if (interval.begin != 0) {
      gloo().getFuture()->addCallback([interval](c10::ivalue::Future&) { end(interval); });
    }
  }

  c10d::Work& gloo() const { return collective_->gloo(); }

  CollectivePtr collective_;
  Tensors outputs_;
  OrderPtr order_;
  Interval waited_for_{};
};

}  // namespace

Collective::Collective(WorkPtr gloo) : gloo_(std::move(gloo)) {}

void Collective::wait() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!waited_for_) {
    gloo_->wait(kNoTimeout);
    waited_for_ = true;
  }
}

CollectivePtr Order::add(WorkPtr gloo) {
  auto collective = std::make_shared<Collective>(std::move(gloo));
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!begun_.empty() && begun_.front()->gloo().isCompleted()) {
    begun_.pop_front();
  }
  begun_.push_back(collective);
  return collective;
}

void Order::wait(const CollectivePtr& last) {
  // The lock is not held while waiting, so that other threads may begin more.
  while (const auto first = first_up_to(last)) {
    first->wait();
    forget(first);
  }
  last->wait();
}

CollectivePtr Order::first_up_to(const CollectivePtr& last) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_there = std::find(begun_.begin(), begun_.end(), last) != begun_.end();
  return is_there ? begun_.front() : nullptr;
}

void Order::forget(const CollectivePtr& first) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Another thread may have waited for the same.
  if (!begun_.empty() && begun_.front() == first) {
    begun_.pop_front();
  }
}

void trace_collective(const char* name, int64_t bytes) {
  collective_in_making = {"collective", name, wall_clock(), 0, this_thread(), bytes};
}

WorkPtr make_hccl_work(c10d::OpType type, WorkPtr gloo, Tensors outputs, OrderPtr order) {
  auto collective = order ? order->add(std::move(gloo)) : std::make_shared<Collective>(std::move(gloo));
  return c10::make_intrusive<HcclWork>(type, std::move(collective), std::move(outputs), std::move(order));
}

}  // namespace hpu_sim
