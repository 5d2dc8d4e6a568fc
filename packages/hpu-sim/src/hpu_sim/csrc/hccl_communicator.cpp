#include "hccl_communicator.h"

#include <sstream>
#include <string>

#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace hpu_sim {
namespace {

const std::string kIdKey = "0";

// The size is part of the id: a rank that an earlier process group did not have recognizes the id as foreign by it.
std::string size_suffix(int size) {
  return "-of-" + std::to_string(size);
}

std::string create_id(int size) {
  std::ostringstream id;
  id << std::hex << c10::detail::getNonDeterministicRandom();
  return id.str() + size_suffix(size);
}

bool has_suffix(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

[[noreturn]] void throw_stale_id(const std::string& id, int rank) {
  TORCH_CHECK(
      false,
      "HCCL process group: the communicator id ",
      id,
      " in the store is stale (simulated): rank ",
      rank,
      " belongs to a new process group, and the store has already served another one. On a card the ranks would hang "
      "or fail to connect. Give each process group a store of its own, or keys of its own: PrefixStore(\"<a name used "
      "once>\", store).");
}

}  // namespace

StorePtr join_communicator(const StorePtr& store, int rank, int size) {
  if (store->add(kIdKey + "/joined/" + std::to_string(rank), 1) > 1) {
    throw_stale_id(store->check({kIdKey}) ? store->get_to_str(kIdKey) : "(not set)", rank);
  }
  if (rank == 0) {
    store->set(kIdKey, create_id(size));
  }
  const std::string id = store->get_to_str(kIdKey);
  if (!has_suffix(id, size_suffix(size))) {
    throw_stale_id(id, rank);
  }
  return c10::make_intrusive<c10d::PrefixStore>(id, store);
}

}  // namespace hpu_sim
