#include "hccl.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "allocator.h"
#include "counters.h"
#include "device_trace.h"
#include "diagnostics.h"
#include "graph.h"
#include "hccl_tensors.h"
#include "hccl_work.h"
#include "never.h"
#include "recorder.h"
#include "stream.h"
#include "strict.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

bool are_equal(const std::vector<int64_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

int64_t num_bytes(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

// Returns a process group with this backend as its CPU backend, which torch's collectives for CPU tensors look up.
c10::intrusive_ptr<c10d::ProcessGroup> as_cpu_group(const BackendPtr& backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return group;
}

// What a collective has started: gloo's work, and what is left to do after it.
struct Started {
  WorkPtr gloo;
  std::function<void()> on_completed;
};
using Start = std::function<Started(c10d::Backend&)>;

class HcclBackend final : public c10d::Backend {
 public:
  explicit HcclBackend(int rank, int size, std::shared_ptr<Communicator> communicator)
      : c10d::Backend(rank, size), communicator_(std::move(communicator)) {
    if (execution_mode() == ExecutionMode::kLater) {
      start_progress_watch();
    } else {
      communicator_->gloo();
    }
    const std::lock_guard<std::mutex> lock(backends_mutex());
    backends().insert(this);
  }

  // As hcclCommDestroy, it waits for the work of the communicator.
  ~HcclBackend() override {
    {
      const std::lock_guard<std::mutex> lock(backends_mutex());
      backends().erase(this);
    }
    for (const auto& stream : {collectives_, launches_, transfers_}) {
      if (stream != nullptr) {
        wait_on_host(stream->record());
        stream->close();
      }
    }
  }

  HcclBackend(const HcclBackend&) = delete;
  HcclBackend& operator=(const HcclBackend&) = delete;

  static std::mutex& backends_mutex() {
    static auto* instance = new std::mutex();
    return *instance;
  }
  static std::set<HcclBackend*>& backends() {
    static auto* instance = new std::set<HcclBackend*>();
    return *instance;
  }

  const std::string getBackendName() const override { return "hccl"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const OddBytePadding padding(tensors);
    auto aliases = as_checked_cpu_alias("broadcast", tensors);
    return launch(
        {c10d::OpType::BROADCAST, "broadcast", tensors, tensors, {}, padding.add()},
        [aliases, options](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto bytes = buffers.add(as_bytes(aliases));
          return Started{gloo.broadcast(bytes, options), buffers.copy_back()};
        });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run_reduction(
        "allreduce",
        options.reduceOp,
        c10d::OpType::ALLREDUCE,
        tensors,
        [options](c10d::Backend& gloo, Tensors& buffers) { return gloo.allreduce(buffers, options); });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run_reduction(
        "allreduce_coalesced",
        options.reduceOp,
        c10d::OpType::ALLREDUCE_COALESCED,
        tensors,
        [options](c10d::Backend& gloo, Tensors& buffers) { return gloo.allreduce_coalesced(buffers, options); });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run_reduction(
        "reduce", options.reduceOp, c10d::OpType::REDUCE, tensors, [options](c10d::Backend& gloo, Tensors& buffers) {
          return gloo.reduce(buffers, options);
        });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
#if HPU_SIM_TORCH >= 201
    if (outputs.size() == 1 && !are_equal(numels(outputs.front()))) {
      return allgather_uneven(outputs.front(), inputs.front());
    }
#endif
    const OddBytePadding padding(concat_lists({concat_lists(outputs), inputs}));
    auto to = as_checked_cpu_alias("allgather", outputs);
    auto from = as_checked_cpu_alias("allgather", inputs);
    return launch(
        {c10d::OpType::ALLGATHER, "allgather", inputs, concat_lists(outputs), inputs, padding.add()},
        [to, from, options](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto received = buffers.add(as_bytes(to));
          auto sent = as_input_bytes(from);
          return Started{gloo.allgather(received, sent, options), buffers.copy_back()};
        });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto to = as_checked_cpu_alias("allgather_base", Tensors{output});
    auto from = as_checked_cpu_alias("allgather_base", Tensors{input});
    return launch(
        {c10d::OpType::_ALLGATHER_BASE, "allgather_base", {input}, {output}, {input}},
        [to, from, options, size = getSize()](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto received = as_rows(buffers.add(as_bytes(to)).front());
          auto sent = as_rows(as_input_bytes(from).front());
#if HPU_SIM_TORCH >= 202
          static_cast<void>(size);
          return Started{gloo._allgather_base(received, sent, options), buffers.copy_back()};
#else
          // Gloo has it from torch 2.2 on; before, allgather.
          TensorLists parts{received.chunk(size)};
          Tensors whole{sent};
          return Started{gloo.allgather(parts, whole, options), buffers.copy_back()};
#endif
        });
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto to = as_checked_cpu_alias("allgather_into_tensor_coalesced", outputs);
    auto from = as_checked_cpu_alias("allgather_into_tensor_coalesced", inputs);
    return launch(
        {c10d::OpType::COALESCED, "allgather_into_tensor_coalesced", inputs, outputs, inputs},
        [to, from, options, size = getSize()](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto received = as_rows(buffers.add(as_bytes(to)));
          auto sent = as_rows(as_input_bytes(from));
#if HPU_SIM_TORCH >= 204
          static_cast<void>(size);
          return Started{gloo.allgather_into_tensor_coalesced(received, sent, options), buffers.copy_back()};
#else
          // Gloo of older torch does not have it; it gathers lists of tensors by rank.
          TensorLists parts(size);
          for (const auto& whole : received) {
            const auto chunks = whole.chunk(size);
            for (size_t rank = 0; rank < parts.size(); ++rank) {
              parts[rank].push_back(chunks[rank]);
            }
          }
          return Started{gloo.allgather_coalesced(parts, sent, options), buffers.copy_back()};
#endif
        });
  }
#endif

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    auto to = as_checked_cpu_alias("gather", outputs);
    auto from = as_checked_cpu_alias("gather", inputs);
    return launch(
        {c10d::OpType::GATHER, "gather", inputs, concat_lists(outputs), inputs},
        [to, from, options](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto received = buffers.add(as_bytes(to));
          auto sent = as_input_bytes(from);
          return Started{gloo.gather(received, sent, options), buffers.copy_back()};
        });
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    auto to = as_checked_cpu_alias("scatter", outputs);
    auto from = as_checked_cpu_alias("scatter", inputs);
    return launch(
        {c10d::OpType::SCATTER, "scatter", outputs, outputs, concat_lists(inputs)},
        [to, from, options](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto received = buffers.add(as_bytes(to));
          auto sent = as_input_bytes(from);
          return Started{gloo.scatter(received, sent, options), buffers.copy_back()};
        });
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        "reduce_scatter",
        c10d::OpType::REDUCE_SCATTER,
        is_strict() ? NativeReduceDtypes::kAll : NativeReduceDtypes::kFloats,
        outputs,
        inputs,
        options);
  }

  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        "reduce_scatter_base",
        c10d::OpType::_REDUCE_SCATTER_BASE,
        NativeReduceDtypes::kFloatsAndInts,
        {output},
        {{input}},
        options);
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return run_reduce_scatter(
        "reduce_scatter_tensor_coalesced",
        c10d::OpType::COALESCED,
        NativeReduceDtypes::kFloatsAndInts,
        outputs,
        as_lists(inputs),
        options);
  }
#endif

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_split,
      std::vector<int64_t>& input_split,
      const c10d::AllToAllOptions& options) override {
    auto to = as_checked_cpu_alias("alltoall_base", Tensors{output});
    auto from = as_checked_cpu_alias("alltoall_base", Tensors{input});
    return launch(
        {c10d::OpType::ALLTOALL_BASE, "alltoall_base", {input}, {output}, {input}},
        [to, from, output_split, input_split, options](c10d::Backend& gloo) mutable {
          OutputBuffers buffers;
          auto received = buffers.add(as_bytes(to)).front();
          auto sent = as_input_bytes(from).front();
          return Started{gloo.alltoall_base(received, sent, output_split, input_split, options), buffers.copy_back()};
        });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    // Gloo has no alltoall of lists before torch 2.13, and then only for tensors of one size.
    auto to = as_checked_cpu_alias("alltoall", outputs);
    auto from = as_checked_cpu_alias("alltoall", inputs);
    return launch(
        {c10d::OpType::ALLTOALL, "alltoall", inputs, outputs, inputs}, [to, from, options](c10d::Backend& gloo) {
          const auto received = as_bytes(to);
          const auto sent = as_bytes(from);
          auto received_sizes = numels(received);
          auto sent_sizes = numels(sent);
          at::Tensor all_received = flatten(received);
          at::Tensor all_sent = flatten(sent);
          return Started{
              gloo.alltoall_base(all_received, all_sent, received_sizes, sent_sizes, options),
              [all_received, received] { unflatten_into(all_received, received); }};
        });
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    const OddBytePadding padding(tensors);
    auto aliases = as_checked_cpu_alias("send", tensors);
    return launch(
        {c10d::OpType::SEND, "send", tensors, tensors, {}, padding.add()},
        [aliases, destination, tag = used_tag(tag)](c10d::Backend& gloo) {
          auto bytes = as_input_bytes(aliases);
          return Started{gloo.send(bytes, destination, tag), nullptr};
        });
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    const OddBytePadding padding(tensors);
    auto aliases = as_checked_cpu_alias("recv", tensors);
    return launch(
        {c10d::OpType::RECV, "recv", tensors, tensors, {}, padding.add()},
        [aliases, source, tag = used_tag(tag)](c10d::Backend& gloo) {
          OutputBuffers buffers;
          auto bytes = buffers.add(as_bytes(aliases));
          return Started{gloo.recv(bytes, source, tag), buffers.copy_back()};
        });
  }

  WorkPtr recvAnysource(Tensors& /*tensors*/, int /*tag*/) override {
    throw_unsupported("recv_any_source", "ProcessGroupHcclBase does not support recv");
  }

  // A barrier of the hosts, which does not synchronize the device. As the bridge's, it blocks in the call, also an
  // asynchronous one, without a limit.
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    if (execution_mode() == ExecutionMode::kNow) {
      return communicator_->gloo().barrier(options);
    }
    if (execution_mode() == ExecutionMode::kLater) {
      host_barrier();
    }
    return make_launched_work(c10d::OpType::BARRIER, {}, {}, nullptr);
  }

  void host_barrier() {
    constexpr int kKeys = 3;
    const int round = num_barriers_++;
    const std::string key = std::to_string(round % kKeys) + "HOST_BARRIER:" + std::to_string(getSize());
    const int64_t arrivals = static_cast<int64_t>(getSize()) * (round / kKeys + 1);
    auto& store = communicator_->store();
    store.add(key, 1);
    while (store.add(key, 0) < arrivals) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

#if HPU_SIM_TORCH >= 201
  // A program that raises between the two leaves the group coalescing, and torch offers it no way to reset that.
  // Outside of strict mode the next start therefore drops what was launched before, whose works the caller has.
  void startCoalescing() override {
    ensure_acquired();
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    if (coalesced_.has_value()) {
      if (is_strict()) {
        throw_unsupported(
            "startCoalescing",
            "Coalescing is already in progress. Have you invoked startCoalescing again without endCoalescing. BTW "
            "nested coalesing is not supported.");
      }
      count_lenience(Lenience::kNestedCoalescing);
    }
    coalesced_.emplace();
  }

  WorkPtr endCoalescing() override { return make_coalesced_work(take_coalesced()); }
#endif

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return num_launched_; }

 private:
  // A collective, by the caller's hpu tensors.
  struct Call {
    c10d::OpType type;
    const char* name;
    Tensors payload;  // for the counters
    Tensors outputs;
    Tensors inputs;
    std::function<void()> on_waited = nullptr;
  };

  static bool is_point_to_point(c10d::OpType type) { return type == c10d::OpType::SEND || type == c10d::OpType::RECV; }

  // Returns the work of `call`, which `start` starts.
  WorkPtr launch(const Call& call, Start start) {
    ++num_launched_;
    record_collective(call.name, call.payload);
    if (execution_mode() == ExecutionMode::kNow) {
      auto started = start(communicator_->gloo());
      const auto queue = is_point_to_point(call.type) ? nullptr : queue_;
      return launched(
          make_hccl_work(call.type, std::move(started.gloo), call.outputs, queue, std::move(started.on_completed)));
    }
    const auto event = execution_mode() == ExecutionMode::kLater ? enqueue(call, std::move(start)) : StreamEvent{};
    return launched(make_launched_work(call.type, call.outputs, event, call.on_waited));
  }

  // Enqueues a collective in the stream of the communicator, after what the caller's stream has launched. Returns its
  // end.
  StreamEvent enqueue(const Call& call, Start start) {
    const bool is_transfer = is_point_to_point(call.type);
    // A transfer starts although the one before, with another rank, has not ended.
    auto& first = created(is_transfer ? launches_ : collectives_);
    auto& last = is_transfer ? created(transfers_) : first;
    first.wait_for(current_stream()->record());
    for (const auto* tensors : {&call.outputs, &call.inputs}) {
      for (const auto& tensor : *tensors) {
        first.wait_for(pending_event(tensor.storage()));
      }
    }
    const auto state = std::make_shared<Started>();
    const auto start_ns = std::make_shared<int64_t>(0);
    first.push(call.name, [communicator = communicator_] { communicator->gloo(); }, WorkKind::kWait);
    const auto started =
        first.push(call.name, [communicator = communicator_, state, start_ns, start = std::move(start)] {
          const c10::InferenceMode off(false);
          *start_ns = is_traced() ? now_ns() : 0;
          *state = start(communicator->gloo());
        });
    last.wait_for(started);
    last.push(
        call.name,
        [state] {
          if (state->gloo == nullptr) {
            return;  // It has not started.
          }
          try {
            state->gloo->wait(kNoTimeout);
          } catch (const std::exception&) {
            stay_stuck();  // HCCL only logs that the connection to a rank has ended.
          }
        },
        WorkKind::kWait);
    const auto event = last.push(
        call.name, [state, start_ns, name = call.name, thread = current_thread_id(), bytes = num_bytes(call.payload)] {
          const c10::InferenceMode off(false);
          if (state->on_completed) {
            state->on_completed();
          }
          if (*start_ns != 0) {
            record_trace_event({"collective", name, *start_ns, now_ns(), thread, bytes});
          }
          *state = Started{};
        });
    for (const auto* tensors : {&call.outputs, &call.inputs}) {
      for (const auto& tensor : *tensors) {
        set_pending_event(tensor.storage(), event);
      }
    }
    return event;
  }

  Stream& created(StreamPtr& stream) {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    if (stream == nullptr) {
      stream = Stream::create();
    }
    return *stream;
  }

  // Returns `work`, which between startCoalescing and endCoalescing also belongs to the coalesced work.
  WorkPtr launched(WorkPtr work) {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    if (coalesced_.has_value()) {
      coalesced_->push_back(work);
    }
    return work;
  }

  // The bridge ignores tags: messages between two ranks match in their order.
  static int used_tag(int tag) { return is_strict() ? 0 : tag; }

  std::vector<WorkPtr> take_coalesced() {
    const std::lock_guard<std::mutex> lock(coalesced_mutex_);
    TORCH_CHECK(coalesced_.has_value(), "endCoalescing invoked without startCoalescing");
    auto works = std::move(*coalesced_);
    coalesced_.reset();
    return works;
  }

#if HPU_SIM_TORCH >= 201
  // Gloo gathers tensors of one size only. As torch does for NCCL, one broadcast per rank gathers others.
  WorkPtr allgather_uneven(const Tensors& outputs, const at::Tensor& input) {
    std::vector<WorkPtr> works;
    for (int root = 0; root < getSize(); ++root) {
      Tensors part{outputs[root]};
      if (root == getRank()) {
        part.front().copy_(input);
      }
      c10d::BroadcastOptions options;
      options.rootRank = root;
      works.push_back(broadcast(part, options));
    }
    if (execution_mode() == ExecutionMode::kLater) {
      return make_launched_work(c10d::OpType::ALLGATHER, outputs, collectives_->record(), nullptr);
    }
    return make_coalesced_work(std::move(works));
  }
#endif

  // The bridge checks the reduction in the thread that executes. Returns the work of a collective that never runs, on
  // any rank; null if HCCL has the reduction.
  WorkPtr failed_late(const char* name, const c10d::ReduceOp& op, c10d::OpType type, const Tensors& outputs) {
    if (!has_pipeline()) {
      check_reduction(name, op);
      return nullptr;
    }
    try {
      check_reduction(name, op);
      return nullptr;
    } catch (const c10::Error&) {
      keep_error(name, std::current_exception(), launching_line());
      return launched(make_launched_work(type, outputs, {}, nullptr));
    }
  }

  template <typename Reduce>
  WorkPtr run_reduction(
      const char* name, const c10d::ReduceOp& op, c10d::OpType type, const Tensors& tensors, const Reduce& reduce) {
    if (auto failed = failed_late(name, op, type, tensors)) {
      return failed;
    }
    auto aliases = as_checked_cpu_alias(name, tensors);
    auto work = launch({type, name, tensors, tensors, {}}, [aliases, reduce](c10d::Backend& gloo) {
      auto reduction = make_allreduce(aliases);
      return Started{reduce(gloo, reduction.buffers), std::move(reduction.on_completed)};
    });
    if (!are_native(aliases, NativeReduceDtypes::kFloats)) {
      work->wait();
    }
    return work;
  }

  WorkPtr run_reduce_scatter(
      const char* name,
      c10d::OpType type,
      NativeReduceDtypes native_dtypes,
      const Tensors& outputs,
      const TensorLists& inputs,
      const c10d::ReduceScatterOptions& options) {
    if (auto failed = failed_late(name, options.reduceOp, type, outputs)) {
      return failed;
    }
    auto to = as_checked_cpu_alias(name, outputs);
    auto from = as_checked_cpu_alias(name, inputs);
    check_reduce_scatter(name, to, from, getSize());
    const auto all = concat_lists(inputs);
    c10d::AllreduceCoalescedOptions allreduce;
    allreduce.reduceOp = options.reduceOp;
    allreduce.timeout = options.timeout;
    auto work = launch(
        {type, name, all, outputs, all}, [to, from, native_dtypes, allreduce, rank = getRank()](c10d::Backend& gloo) {
          auto reduction = make_reduce_scatter(to, from, native_dtypes, rank);
          auto& buffers = reduction.buffers;
          return Started{
              buffers.size() == 1 ? gloo.allreduce(buffers, allreduce) : gloo.allreduce_coalesced(buffers, allreduce),
              std::move(reduction.on_completed)};
        });
    if (!are_native(all, native_dtypes)) {
      work->wait();
    }
    return work;
  }

  std::shared_ptr<Communicator> communicator_;
  WorkQueuePtr queue_ = std::make_shared<WorkQueue>();
  StreamPtr collectives_;
  StreamPtr launches_;  // of transfers between two ranks
  StreamPtr transfers_;
  std::atomic<int> num_barriers_{0};
  std::atomic<uint64_t> num_launched_{0};
  std::mutex coalesced_mutex_;  // also of the streams
  std::optional<std::vector<WorkPtr>> coalesced_;
};

// Removes torch's Python objects from the thread-local state while it lives. Gloo's works capture that state, and
// destroying captured Python objects on a gloo thread at shutdown aborts the process.
class PythonTLSGuard {
 public:
  PythonTLSGuard() : objects_(at::impl::ThreadLocalPythonObjects::get_state()) {
    at::impl::ThreadLocalPythonObjects::set_state({});
  }
  ~PythonTLSGuard() { at::impl::ThreadLocalPythonObjects::set_state(std::move(objects_)); }
  PythonTLSGuard(const PythonTLSGuard&) = delete;
  PythonTLSGuard& operator=(const PythonTLSGuard&) = delete;

 private:
  at::impl::ThreadLocalPythonObjects objects_;
};

// Boxed kernel for every collective of every torch release. It only replaces the process group.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  if (is_recorded()) {
    record_event("operator", op, {stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end()}, {});
  }
  const PythonTLSGuard guard;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "process_group") {
      auto& value = (*stack)[first + i];
      auto backend = value.toCustomClass<c10d::ProcessGroup>()->getBackend(c10::DeviceType::HPU);
      if (is_never()) {
        value = c10::IValue(as_cpu_group(backend));
        continue;
      }
      auto* hccl = dynamic_cast<HcclBackend*>(backend.get());
      TORCH_CHECK(
          hccl != nullptr,
          "collectives on hpu tensors need the hccl backend, got a process group with the backend ",
          backend->getBackendName(),
          ".");
      value = c10::IValue(as_cpu_group(backend));
    }
  }
  // A recorded work of gloo ends on one of gloo's threads. If that is after the end of the profile, torch writes to an
  // event that it has freed. The bridge's collectives have no such record either.
  const at::DisableRecordFunctionGuard unrecorded;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

void record_collective(const char* name, const Tensors& payload) {
  // The other ranks read results of the graph.
  graph_recorder().flush();
  const int64_t bytes = num_bytes(payload);
  ++counters().collectives;
  counters().collective_bytes += bytes;
  if (C10_UNLIKELY(is_traced()) && execution_mode() == ExecutionMode::kNow) {
    start_collective_event(name, bytes);
  }
  if (C10_UNLIKELY(is_observed())) {
    notify({"collective", name, payload.empty() ? "" : describe(payload.front()), bytes});
  }
}

BackendPtr make_hccl_backend(int rank, int size, std::shared_ptr<Communicator> communicator) {
  return c10::make_intrusive<HcclBackend>(rank, size, std::move(communicator));
}

void finish_collectives() {
  if (execution_mode() != ExecutionMode::kLater) {
    return;
  }
  std::set<HcclBackend*> backends;
  {
    const std::lock_guard<std::mutex> lock(HcclBackend::backends_mutex());
    backends = HcclBackend::backends();
  }
  for (auto* backend : backends) {
    try {
      backend->host_barrier();
    } catch (const std::exception&) {
      // The process of the store is gone.
    }
  }
  wait_for_device(/*keeps_gil=*/false);
}

void register_collectives() {
  static auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::HPU, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findOp(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      library->impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_collective>());
    }
  }
}

}  // namespace hpu_sim
