// The "hccl" process group backend: gloo under the bridge's rules.
#pragma once

#include "common.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hpu_sim {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// HCCL's own limit for all ranks to come, in seconds; hcl_global_conf.cpp:534 of HCL 1.21.
constexpr double kCommunicatorLimit = 120;

// Joins the communicator of `store` and returns the store over which its ranks connect: `store` under a prefix that
// holds the id.
//
// As in the bridge, rank 0 creates the id and sets it under key "0"; the other ranks get it from there. On a card, a
// store that has served another process group still holds the id of that one, and the ranks that read it hang or fail
// to connect. Here every rank counts its joins in the store, and throws on the second one. If kernels run later, it
// blocks until all ranks have come, and throws after `limit` seconds.
StorePtr join_communicator(const StorePtr& store, int rank, int size, double limit = kCommunicatorLimit);

// Returns a store with a connection of its own, where `store` has one: a thread that waits for a key of a TCPStore
// keeps all others from it.
StorePtr own_client(const StorePtr& store);

// Communicator of a process group: a gloo backend, made at its first use as HCCL's is.
class Communicator {
 public:
  // `connect` returns the gloo backend over a store. It needs Python's lock.
  Communicator(StorePtr store, int rank, int size, std::function<BackendPtr(const StorePtr&)> connect)
      : store_(std::move(store)), rank_(rank), size_(size), connect_(std::move(connect)) {}

  c10d::Store& store() { return *store_; }

  // Returns the gloo backend. The first call joins the communicator. If kernels run later, it is one of work: it blocks
  // until all ranks have come, and throws if that takes longer than HCCL's limit.
  c10d::Backend& gloo();

 private:
  StorePtr store_;
  int rank_;
  int size_;
  std::function<BackendPtr(const StorePtr&)> connect_;
  std::mutex mutex_;
  BackendPtr gloo_;
};

// Compares a collective with those of the other ranks before it runs, by a key that must be the same on all. A card
// does not: it hangs or computes with other numbers. Throws on all ranks alike, with what each of them is in. `wait`
// waits for gloo's work.
void compare_ranks(
    c10d::Backend& gloo, const std::string& key, const std::string& what, const std::function<void(c10d::Work&)>& wait);

// Without a communicator, the backend is that of a plan, which exchanges nothing.
BackendPtr make_hccl_backend(int rank, int size, std::shared_ptr<Communicator> communicator);

// Waits for all process groups, as the bridge does at exit: for a barrier of the hosts of each, and for the device.
// Does not return if a rank has died.
void finish_collectives();

// Registers hpu kernels for the operators of torch.distributed. To be called once.
void register_collectives();

}  // namespace hpu_sim
