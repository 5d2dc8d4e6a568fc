// What a program holds of a collective that has begun, and in which order a group's are done.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "hccl_tensors.h"

namespace hpu_sim {

// One of gloo's works, waited for once, because some copy their results again whenever they are waited for.
class Collective {
 public:
  explicit Collective(WorkPtr gloo);

  c10d::Work& gloo() { return *gloo_; }
  void wait();

 private:
  WorkPtr gloo_;
  std::mutex mutex_;
  bool waited_for_ = false;
};

using CollectivePtr = std::shared_ptr<Collective>;

// A card does the collectives of a group one after the other, so that a program may wait for the last of several alone,
// as DeepSpeed up to 0.19.0 does. Gloo does several at a time, and copies the results of some to where they belong only
// when they are waited for.
class Order {
 public:
  // Puts one behind all others. Those at the front that are known to be over are forgotten, with their tensors.
  CollectivePtr add(WorkPtr gloo);

  // Waits for one and for all before it.
  void wait(const CollectivePtr& last);

 private:
  // The first of those up to one; null if that has been waited for.
  CollectivePtr first_up_to(const CollectivePtr& last);
  void forget(const CollectivePtr& first);

  std::mutex mutex_;
  std::deque<CollectivePtr> begun_;
};

using OrderPtr = std::shared_ptr<Order>;

// While a profile is recorded: notes when the collective begins that this thread is about to hand to gloo.
void trace_collective(const char* name, int64_t bytes);

// Gloo's work, whose result is the hpu tensors that the caller passed in rather than the CPU tensors borrowed from
// them. Sending and receiving concerns two ranks of the group alone, and has no `order`.
WorkPtr make_hccl_work(c10d::OpType type, WorkPtr gloo, Tensors outputs, OrderPtr order = nullptr);

}  // namespace hpu_sim
