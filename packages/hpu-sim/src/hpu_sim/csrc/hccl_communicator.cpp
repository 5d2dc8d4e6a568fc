#include "hccl.h"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/GeneratorImpl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

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

// The prefix, which torch shows to subclasses only.
class Prefixed : public c10d::PrefixStore {
 public:
  static const std::string& of(c10d::PrefixStore& store) { return store.*(&Prefixed::prefix_); }
};

// Returns the bytes of each rank, all of this size.
std::vector<std::string> exchange_bytes(
    c10d::Backend& gloo, const std::string& bytes, const std::function<void(c10d::Work&)>& wait) {
  const c10::InferenceMode off(false);
  const at::DisableRecordFunctionGuard unrecorded;
  const auto make = [&] { return at::empty({static_cast<int64_t>(bytes.size())}, at::TensorOptions(at::kByte)); };
  std::vector<at::Tensor> sent{make()};
  std::memcpy(sent.front().data_ptr(), bytes.data(), bytes.size());
  std::vector<std::vector<at::Tensor>> received(1);
  for (int rank = 0; rank < gloo.getSize(); ++rank) {
    received.front().push_back(make());
  }
  wait(*gloo.allgather(received, sent, c10d::AllgatherOptions()));
  std::vector<std::string> result;
  for (const auto& each : received.front()) {
    result.emplace_back(static_cast<const char*>(each.data_ptr()), bytes.size());
  }
  return result;
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
    std::this_thread::sleep_for(kStorePoll);
  }
}

}  // namespace

StorePtr own_client(const StorePtr& store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    return c10::make_intrusive<c10d::PrefixStore>(Prefixed::of(*prefixed), own_client(prefixed->getUnderlyingStore()));
  }
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get())) {
    c10d::TCPStoreOptions options;
    options.port = tcp->getPort();
    options.waitWorkers = false;
    options.timeout = store->getTimeout();
    return c10::make_intrusive<c10d::TCPStore>(tcp->getHost(), options);
  }
  return store;
}

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

void compare_ranks(
    c10d::Backend& gloo,
    const std::string& key,
    const std::string& what,
    const std::function<void(c10d::Work&)>& wait) {
  const uint64_t hash = std::hash<std::string>()(key);
  const auto hashes = exchange_bytes(gloo, {reinterpret_cast<const char*>(&hash), sizeof(hash)}, wait);
  if (std::adjacent_find(hashes.begin(), hashes.end(), std::not_equal_to<>()) == hashes.end()) {
    return;
  }
  constexpr size_t kTextSize = 512;
  std::string padded = what;
  padded.resize(kTextSize);
  const auto texts = exchange_bytes(gloo, padded, wait);
  std::ostringstream ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    ranks << (rank == 0 ? "" : "; ") << "rank " << rank << " in " << texts[rank].c_str();
  }
  TORCH_CHECK(
      false,
      "The ranks of a process group have met in different collectives, by which a card hangs or computes wrong numbers "
      "(simulated): ",
      ranks.str(),
      ". All ranks must call the same collectives in the same order.");
}

c10d::Backend& Communicator::gloo() {
  const WithoutGil no_gil;
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
