#include "hccl.h"

#include <c10/core/GeneratorImpl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "stream.h"

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

constexpr std::chrono::milliseconds kStorePoll(5);

// Blocks until a condition of the store holds. Torch's own wait would keep other threads from the store.
void poll_store(const std::function<bool()>& holds, double limit) {
  const auto start = std::chrono::steady_clock::now();
  while (!holds()) {
    TORCH_CHECK(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < limit,
        "hcclCommInitRank failed: not all ranks have come within ",
        limit,
        " s (simulated)");
    note_progress();
    std::this_thread::sleep_for(kStorePoll);
  }
}

}  // namespace

StorePtr join_communicator(const StorePtr& store, int rank, int size, double limit) {
  const bool is_polled = execution_mode() == ExecutionMode::kLater;
  if (store->add(kIdKey + "/joined/" + std::to_string(rank), 1) > 1) {
    throw_stale_id(store->check({kIdKey}) ? store->get_to_str(kIdKey) : "(not set)", rank);
  }
  if (rank == 0) {
    store->set(kIdKey, create_id(size));
  }
  if (is_polled) {
    poll_store([&] { return store->check({kIdKey}); }, limit);
  }
  const std::string id = store->get_to_str(kIdKey);
  if (!has_suffix(id, size_suffix(size))) {
    throw_stale_id(id, rank);
  }
  auto joined = c10::make_intrusive<c10d::PrefixStore>(id, store);
  if (is_polled) {
    joined->add("arrived", 1);
    poll_store([&] { return joined->add("arrived", 0) >= size; }, limit);
  }
  return joined;
}

c10d::Backend& Communicator::gloo() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_ == nullptr) {
    const auto store = join_communicator(store_, rank_, size_);
    run_with_gil([&] {
      try {
        gloo_ = connect_(store);
      } catch (const std::exception& error) {
        TORCH_CHECK(false, "hcclCommInitRank failed: ", error.what());
      }
      connect_ = nullptr;
    });
  }
  return *gloo_;
}

}  // namespace hpu_sim
