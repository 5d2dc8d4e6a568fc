#include "hccl.h"

#include <string>
#include <utility>

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "counters.h"
#include "device_trace.h"
#include "graph.h"
#include "hccl_tensors.h"
#include "hccl_work.h"
#include "observer.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

void count(const char* name, const Tensors& payload) {
  // Whatever the graph holds has to have run before another card may read its results.
  graph_recorder().close();
  int64_t bytes = 0;
  for (const auto& tensor : payload) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  ++counters().collectives;
  counters().collective_bytes += bytes;
  if (C10_UNLIKELY(is_traced())) {
    trace_collective(name, bytes);
  }
  if (C10_UNLIKELY(is_observed())) {
    notify({"collective", name, payload.empty() ? "" : describe(payload.front()), bytes});
  }
}

class HcclBackend final : public c10d::Backend {
 public:
  explicit HcclBackend(BackendPtr gloo) : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }

  // Torch's kernels for CPU tensors look up the CPU backend of the group they are given; in this one it is the hccl
  // backend.
  c10::intrusive_ptr<c10d::ProcessGroup> as_cpu_group() {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(getRank(), getSize());
    group->setBackend(
        c10::DeviceType::CPU,
        c10d::ProcessGroup::BackendType::CUSTOM,
        c10::intrusive_ptr<HcclBackend>::unsafe_reclaim_from_nonowning(this));
    return group;
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto bytes = as_bytes("broadcast", tensors);
    count("broadcast", tensors);
    return work(c10d::OpType::BROADCAST, gloo_->broadcast(bytes, options), tensors);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return in_place("allreduce", options.reduceOp, c10d::OpType::ALLREDUCE, tensors, [&](Tensors& host) {
      return gloo_->allreduce(host, options);
    });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return in_place(
        "allreduce_coalesced", options.reduceOp, c10d::OpType::ALLREDUCE_COALESCED, tensors, [&](Tensors& host) {
          return gloo_->allreduce_coalesced(host, options);
        });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return in_place("reduce", options.reduceOp, c10d::OpType::REDUCE, tensors, [&](Tensors& host) {
      return gloo_->reduce(host, options);
    });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto to = as_bytes("allgather", outputs);
    auto from = as_bytes("allgather", inputs);
    count("allgather", inputs);
    return work(c10d::OpType::ALLGATHER, gloo_->allgather(to, from, options), flatten(outputs));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto to = as_bytes("allgather_base", flat(output));
    auto from = as_bytes("allgather_base", flat(input));
    count("allgather_base", {input});
#if HPU_SIM_TORCH >= 202
    auto gloo = gloo_->_allgather_base(to, from, options);
#else
    // 2.2: gloo knows this. Before, of lists.
    TensorLists parts{to.chunk(getSize())};
    Tensors whole{from};
    auto gloo = gloo_->allgather(parts, whole, options);
#endif
    return work(c10d::OpType::_ALLGATHER_BASE, std::move(gloo), {output});
  }

#if HPU_SIM_TORCH >= 202
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto to = as_bytes("allgather_into_tensor_coalesced", flat(outputs));
    auto from = as_bytes("allgather_into_tensor_coalesced", flat(inputs));
    count("allgather_into_tensor_coalesced", inputs);
    return work(c10d::OpType::COALESCED, gloo_->allgather_into_tensor_coalesced(to, from, options), outputs);
  }
#endif

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    auto to = as_bytes("gather", outputs);
    auto from = as_bytes("gather", inputs);
    count("gather", inputs);
    return work(c10d::OpType::GATHER, gloo_->gather(to, from, options), flatten(outputs));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    auto to = as_bytes("scatter", outputs);
    auto from = as_bytes("scatter", inputs);
    count("scatter", outputs);
    return work(c10d::OpType::SCATTER, gloo_->scatter(to, from, options), outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    // One list of one tensor per rank: the lists are flattened for the conversion and taken apart again.
    Reduction reduction("reduce_scatter", options.reduceOp, outputs, flatten(inputs), Natives::kFloats);
    TensorLists lists;
    auto next = reduction.inputs().begin();
    for (const auto& list : inputs) {
      lists.emplace_back(next, next + static_cast<int64_t>(list.size()));
      next += static_cast<int64_t>(list.size());
    }
    count("reduce_scatter", flatten(inputs));
#if HPU_SIM_TORCH >= 209
    auto gloo = gloo_->reduce_scatter(reduction.outputs(), lists, options);
#else
    auto gloo = reduce_and_scatter_as_one(reduction.outputs(), lists, options);
#endif
    reduction.finish(gloo);
    return work(c10d::OpType::REDUCE_SCATTER, std::move(gloo), outputs);
  }

  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    Reduction reduction(
        "reduce_scatter_base", options.reduceOp, {flat(output)}, {flat(input)}, Natives::kFloatsAndInts);
    count("reduce_scatter_base", {input});
    auto gloo = reduce_and_scatter(reduction.outputs()[0], reduction.inputs()[0], options);
    reduction.finish(gloo);
    return work(c10d::OpType::_REDUCE_SCATTER_BASE, std::move(gloo), {output});
  }

#if HPU_SIM_TORCH >= 202
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    Reduction reduction(
        "reduce_scatter_tensor_coalesced", options.reduceOp, flat(outputs), flat(inputs), Natives::kFloatsAndInts);
    count("reduce_scatter_tensor_coalesced", inputs);
    auto gloo = gloo_->reduce_scatter_tensor_coalesced(reduction.outputs(), reduction.inputs(), options);
    reduction.finish(gloo);
    return work(c10d::OpType::COALESCED, std::move(gloo), outputs);
  }
#endif

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_split,
      std::vector<int64_t>& input_split,
      const c10d::AllToAllOptions& options) override {
    auto to = as_bytes("alltoall_base", output);
    auto from = as_bytes("alltoall_base", input);
    count("alltoall_base", {input});
    return work(
        c10d::OpType::ALLTOALL_BASE, gloo_->alltoall_base(to, from, output_split, input_split, options), {output});
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    auto to = as_bytes("alltoall", outputs);
    auto from = as_bytes("alltoall", inputs);
    count("alltoall", inputs);
#if HPU_SIM_TORCH >= 213
    return work(c10d::OpType::ALLTOALL, gloo_->alltoall(to, from, options), outputs);
#else
    return work(c10d::OpType::ALLTOALL, exchange_as_one(to, from, options), outputs);
#endif
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    auto bytes = as_bytes("send", tensors);
    count("send", tensors);
    return make_hccl_work(c10d::OpType::SEND, gloo_->send(bytes, destination, tag), tensors);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    auto bytes = as_bytes("recv", tensors);
    count("recv", tensors);
    return make_hccl_work(c10d::OpType::RECV, gloo_->recv(bytes, source, tag), tensors);
  }

  // A barrier of the hosts: it does not wait for the device.
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

 private:
  WorkPtr work(c10d::OpType type, WorkPtr gloo, Tensors outputs) {
    return make_hccl_work(type, std::move(gloo), std::move(outputs), order_);
  }

  template <typename Reduce>
  WorkPtr in_place(
      const char* name, const c10d::ReduceOp& op, c10d::OpType type, const Tensors& tensors, const Reduce& reduce) {
    Reduction reduction(name, op, tensors, tensors, Natives::kFloats);
    count(name, tensors);
    // Gloo reduces in place: only one of the two sets of tensors takes part.
    auto gloo = reduce(reduction.outputs());
    reduction.finish(gloo);
    return work(type, std::move(gloo), tensors);
  }

  WorkPtr reduce_and_scatter(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
#if HPU_SIM_TORCH >= 206
    return gloo_->_reduce_scatter_base(output, input, options);
#elif HPU_SIM_TORCH >= 202
    // 2.6: gloo does this beside the program. Before, it refuses to.
    auto waited_for = options;
    waited_for.asyncOp = false;
    return gloo_->_reduce_scatter_base(output, input, waited_for);
#else
    // 2.2: gloo knows this. Before, every rank reduces all and keeps its own.
    Tensors all{input.clone()};
    c10d::AllreduceOptions reduce;
    reduce.reduceOp = options.reduceOp;
    auto gloo = gloo_->allreduce(all, reduce);
    gloo->wait();
    output.copy_(all.front().chunk(getSize())[getRank()]);
    return gloo;
#endif
  }

#if HPU_SIM_TORCH < 213
  // 2.13: gloo knows this of lists. Before, a list travels as one tensor, which is taken apart when all of it is there.
  WorkPtr exchange_as_one(const Tensors& to, const Tensors& from, const c10d::AllToAllOptions& options) {
    std::vector<int64_t> received_sizes = sizes_of(to);
    std::vector<int64_t> sent_sizes = sizes_of(from);
    at::Tensor sent = joined(from);
    at::Tensor received = joined(to);
    auto gloo = gloo_->alltoall_base(received, sent, received_sizes, sent_sizes, options);
    gloo->wait();
    take_apart(received, to);
    return gloo;
  }
#endif

#if HPU_SIM_TORCH < 209
  // 2.9: the same of this.
  WorkPtr reduce_and_scatter_as_one(
      const Tensors& outputs, const TensorLists& lists, const c10d::ReduceScatterOptions& options) {
    at::Tensor input = joined(lists.front());
    at::Tensor output = joined(outputs);
    auto gloo = reduce_and_scatter(output, input, options);
    gloo->wait();
    take_apart(output, outputs);
    return gloo;
  }
#endif

  BackendPtr gloo_;
  OrderPtr order_ = std::make_shared<Order>();
};

// Gloo's work keeps a copy of this thread's state, with the Python objects that torch puts there during a backward
// pass. A thread of gloo's drops the work, and one that asks for Python's lock while the interpreter ends takes the
// program down with it: so gloo gets to see none of them.
class WithoutPythonObjects {
 public:
  WithoutPythonObjects() : objects_(at::impl::ThreadLocalPythonObjects::get_state()) {
    at::impl::ThreadLocalPythonObjects::set_state({});
  }
  ~WithoutPythonObjects() { at::impl::ThreadLocalPythonObjects::set_state(std::move(objects_)); }
  WithoutPythonObjects(const WithoutPythonObjects&) = delete;
  WithoutPythonObjects& operator=(const WithoutPythonObjects&) = delete;

 private:
  at::impl::ThreadLocalPythonObjects objects_;
};

// Boxed, so that one function serves every collective of every torch release: only the group is replaced.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const WithoutPythonObjects guard;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "process_group") {
      auto& value = (*stack)[first + i];
      auto backend = value.toCustomClass<c10d::ProcessGroup>()->getBackend(c10::DeviceType::HPU);
      auto* hccl = dynamic_cast<HcclBackend*>(backend.get());
      TORCH_CHECK(
          hccl != nullptr,
          "Collectives on hpu tensors need the hccl backend, this group has ",
          backend->getBackendName(),
          ".");
      value = c10::IValue(hccl->as_cpu_group());
    }
  }
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
