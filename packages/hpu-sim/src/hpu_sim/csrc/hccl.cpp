#include "hccl.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "counters.h"
#include "device_trace.h"
#include "diagnostics.h"
#include "graph.h"
#include "hccl_tensors.h"
#include "hccl_work.h"
#include "pipeline.h"
#include "strict.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

bool are_equal(const std::vector<int64_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

void record_collective(const char* name, const Tensors& payload) {
  // The other ranks read results of the graph.
  graph_recorder().flush();
  int64_t bytes = 0;
  for (const auto& tensor : payload) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  ++counters().collectives;
  counters().collective_bytes += bytes;
  if (C10_UNLIKELY(is_traced())) {
    start_collective_event(name, bytes);
  }
  if (C10_UNLIKELY(is_observed())) {
    notify({"collective", name, payload.empty() ? "" : describe(payload.front()), bytes});
  }
}

class HcclBackend final : public c10d::Backend {
 public:
  explicit HcclBackend(BackendPtr gloo) : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }

  // Returns a process group with this backend as its CPU backend, which torch's collectives for CPU tensors look up.
  c10::intrusive_ptr<c10d::ProcessGroup> as_cpu_group() {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(getRank(), getSize());
    group->setBackend(
        c10::DeviceType::CPU,
        c10d::ProcessGroup::BackendType::CUSTOM,
        c10::intrusive_ptr<HcclBackend>::unsafe_reclaim_from_nonowning(this));
    return group;
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const OddBytePadding padding(tensors);
    OutputBuffers buffers;
    auto bytes = buffers.add(as_bytes("broadcast", tensors));
    record_collective("broadcast", tensors);
    auto gloo = gloo_->broadcast(bytes, options);
    return enqueue(c10d::OpType::BROADCAST, std::move(gloo), tensors, padding.add(buffers.copy_back()));
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return run_reduction("allreduce", options.reduceOp, c10d::OpType::ALLREDUCE, tensors, [&](Tensors& buffers) {
      return gloo_->allreduce(buffers, options);
    });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return run_reduction(
        "allreduce_coalesced", options.reduceOp, c10d::OpType::ALLREDUCE_COALESCED, tensors, [&](Tensors& buffers) {
          return gloo_->allreduce_coalesced(buffers, options);
        });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return run_reduction("reduce", options.reduceOp, c10d::OpType::REDUCE, tensors, [&](Tensors& buffers) {
      return gloo_->reduce(buffers, options);
    });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
#if HPU_SIM_TORCH >= 201
    if (outputs.size() == 1 && !are_equal(numels(outputs.front()))) {
      return allgather_uneven(outputs.front(), inputs.front());
    }
#endif
    const OddBytePadding padding(concat_lists({concat_lists(outputs), inputs}));
    OutputBuffers buffers;
    auto to = buffers.add(as_bytes("allgather", outputs));
    auto from = as_input_bytes("allgather", inputs);
    record_collective("allgather", inputs);
    auto gloo = gloo_->allgather(to, from, options);
    return enqueue(c10d::OpType::ALLGATHER, std::move(gloo), concat_lists(outputs), padding.add(buffers.copy_back()));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    OutputBuffers buffers;
    auto to = as_rows(buffers.add(as_bytes("allgather_base", output)));
    auto from = as_rows(as_input_bytes("allgather_base", input));
    record_collective("allgather_base", {input});
#if HPU_SIM_TORCH >= 202
    auto gloo = gloo_->_allgather_base(to, from, options);
#else
    // Gloo has it from torch 2.2 on; before, allgather.
    TensorLists parts{to.chunk(getSize())};
    Tensors whole{from};
    auto gloo = gloo_->allgather(parts, whole, options);
#endif
    return enqueue(c10d::OpType::_ALLGATHER_BASE, std::move(gloo), {output}, buffers.copy_back());
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    OutputBuffers buffers;
    auto to = as_rows(buffers.add(as_bytes("allgather_into_tensor_coalesced", outputs)));
    auto from = as_rows(as_input_bytes("allgather_into_tensor_coalesced", inputs));
    record_collective("allgather_into_tensor_coalesced", inputs);
#if HPU_SIM_TORCH >= 204
    auto gloo = gloo_->allgather_into_tensor_coalesced(to, from, options);
#else
    // Gloo of older torch does not have it; it gathers lists of tensors by rank.
    TensorLists parts(getSize());
    for (const auto& whole : to) {
      const auto chunks = whole.chunk(getSize());
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        parts[rank].push_back(chunks[rank]);
      }
    }
    auto gloo = gloo_->allgather_coalesced(parts, from, options);
#endif
    return enqueue(c10d::OpType::COALESCED, std::move(gloo), outputs, buffers.copy_back());
  }
#endif

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    OutputBuffers buffers;
    auto to = buffers.add(as_bytes("gather", outputs));
    auto from = as_input_bytes("gather", inputs);
    record_collective("gather", inputs);
    return enqueue(c10d::OpType::GATHER, gloo_->gather(to, from, options), concat_lists(outputs), buffers.copy_back());
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    OutputBuffers buffers;
    auto to = buffers.add(as_bytes("scatter", outputs));
    auto from = as_input_bytes("scatter", inputs);
    record_collective("scatter", outputs);
    return enqueue(c10d::OpType::SCATTER, gloo_->scatter(to, from, options), outputs, buffers.copy_back());
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
    OutputBuffers buffers;
    auto to = buffers.add(as_bytes("alltoall_base", output));
    auto from = as_input_bytes("alltoall_base", input);
    record_collective("alltoall_base", {input});
    return enqueue(
        c10d::OpType::ALLTOALL_BASE,
        gloo_->alltoall_base(to, from, output_split, input_split, options),
        {output},
        buffers.copy_back());
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    // Gloo has no alltoall of lists before torch 2.13, and then only for tensors of one size.
    const auto to = as_bytes("alltoall", outputs);
    const auto from = as_bytes("alltoall", inputs);
    record_collective("alltoall", inputs);
    auto received_sizes = numels(to);
    auto sent_sizes = numels(from);
    at::Tensor received = flatten(to);
    at::Tensor sent = flatten(from);
    auto gloo = gloo_->alltoall_base(received, sent, received_sizes, sent_sizes, options);
    return enqueue(c10d::OpType::ALLTOALL, std::move(gloo), outputs, [received, to] { unflatten_into(received, to); });
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    const OddBytePadding padding(tensors);
    auto bytes = as_input_bytes("send", tensors);
    record_collective("send", tensors);
    auto gloo = gloo_->send(bytes, destination, used_tag(tag));
    return launched(
        make_hccl_work(c10d::OpType::SEND, std::move(gloo), tensors, /*queue=*/nullptr, padding.add(nullptr)));
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    const OddBytePadding padding(tensors);
    OutputBuffers buffers;
    auto bytes = buffers.add(as_bytes("recv", tensors));
    record_collective("recv", tensors);
    auto gloo = gloo_->recv(bytes, source, used_tag(tag));
    return launched(make_hccl_work(
        c10d::OpType::RECV, std::move(gloo), tensors, /*queue=*/nullptr, padding.add(buffers.copy_back())));
  }

  WorkPtr recvAnysource(Tensors& /*tensors*/, int /*tag*/) override {
    throw_unsupported("recv_any_source", "ProcessGroupHcclBase does not support recv");
  }

  // A barrier of the hosts. It does not synchronize the device.
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

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

  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

 private:
  WorkPtr enqueue(c10d::OpType type, WorkPtr gloo, Tensors outputs, std::function<void()> on_completed) {
    return launched(make_hccl_work(type, std::move(gloo), std::move(outputs), queue_, std::move(on_completed)));
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
    return make_coalesced_work(std::move(works));
  }
#endif

  // The bridge checks the reduction in the thread that executes.
  static bool fails_late(const char* name, const c10d::ReduceOp& op) {
    if (!Pipeline::is_on()) {
      return false;
    }
    try {
      check_reduction(name, op);
      return false;
    } catch (const c10::Error&) {
      pipeline().fail(name, std::current_exception());
      return true;
    }
  }

  // Returns the work of a collective that never runs, on any rank.
  WorkPtr failed(c10d::OpType type, const Tensors& outputs) {
    return enqueue(type, gloo_->barrier({}), outputs, nullptr);
  }

  template <typename Reduce>
  WorkPtr run_reduction(
      const char* name, const c10d::ReduceOp& op, c10d::OpType type, const Tensors& tensors, const Reduce& reduce) {
    if (fails_late(name, op)) {
      return failed(type, tensors);
    }
    auto reduction = make_allreduce(name, op, tensors);
    record_collective(name, tensors);
    return enqueue(type, std::move(reduction), tensors, reduce);
  }

  template <typename Reduce>
  WorkPtr enqueue(c10d::OpType type, Reduction reduction, Tensors outputs, const Reduce& reduce) {
    auto work = enqueue(type, reduce(reduction.buffers), std::move(outputs), std::move(reduction.on_completed));
    if (reduction.is_converted) {
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
    if (fails_late(name, options.reduceOp)) {
      return failed(type, outputs);
    }
    auto reduction = make_reduce_scatter(name, options.reduceOp, outputs, inputs, native_dtypes, getRank(), getSize());
    record_collective(name, concat_lists(inputs));
    return enqueue(type, std::move(reduction), outputs, [&](Tensors& buffers) {
      c10d::AllreduceCoalescedOptions allreduce;
      allreduce.reduceOp = options.reduceOp;
      allreduce.timeout = options.timeout;
      return buffers.size() == 1 ? gloo_->allreduce(buffers, allreduce)
                                 : gloo_->allreduce_coalesced(buffers, allreduce);
    });
  }

  BackendPtr gloo_;
  WorkQueuePtr queue_ = std::make_shared<WorkQueue>();
  std::mutex coalesced_mutex_;
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
  const PythonTLSGuard guard;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "process_group") {
      auto& value = (*stack)[first + i];
      auto backend = value.toCustomClass<c10d::ProcessGroup>()->getBackend(c10::DeviceType::HPU);
      auto* hccl = dynamic_cast<HcclBackend*>(backend.get());
      TORCH_CHECK(
          hccl != nullptr,
          "collectives on hpu tensors need the hccl backend, got a process group with the backend ",
          backend->getBackendName(),
          ".");
      value = c10::IValue(hccl->as_cpu_group());
    }
  }
  // A recorded work of gloo ends on one of gloo's threads. If that is after the end of the profile, torch writes to an
  // event that it has freed. The bridge's collectives have no such record either.
  const at::DisableRecordFunctionGuard unrecorded;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

}  // namespace

BackendPtr make_hccl_backend(BackendPtr gloo) {
  return c10::make_intrusive<HcclBackend>(std::move(gloo));
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
