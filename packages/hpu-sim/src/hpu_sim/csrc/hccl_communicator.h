// Exchange of the communicator id through the store of a process group.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hpu_sim {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Joins the communicator of `store` and returns the store over which its ranks connect: `store` under a prefix that
// holds the id.
//
// As in the bridge, rank 0 creates the id and sets it under key "0"; the other ranks get it from there. On a card, a
// store that has served another process group still holds the id of that one, and the ranks that read it hang or fail
// to connect. Here every rank counts its joins in the store, and throws on the second one.
StorePtr join_communicator(const StorePtr& store, int rank, int size);

}  // namespace hpu_sim
