#include "hccl.h"

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "alias.h"
#include "counters.h"
#include "graph.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// Gloo's work, whose result is the hpu tensors that the caller passed in rather than the CPU tensors borrowed from them.
class HcclWork final : public c10d::Work {
 public:
  HcclWork(c10d::OpType type, WorkPtr gloo, Tensors outputs)
      : c10d::Work(-1, type), gloo_(std::move(gloo)), outputs_(std::move(outputs)) {}

  bool isCompleted() override { return gloo_->isCompleted(); }
  bool isSuccess() const override { return gloo_->isSuccess(); }
  std::exception_ptr exception() const override { return gloo_->exception(); }
  int sourceRank() const override { return gloo_->sourceRank(); }
  Tensors result() override { return outputs_; }
  void synchronize() override { gloo_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override { return gloo_->wait(timeout); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return gloo_->getFuture()->then(
        [outputs = outputs_](c10::ivalue::Future& done) {
          done.value(); // Throws the collective's error, if it failed.
          return c10::IValue(outputs);
        },
        c10::ListType::create(c10::TensorType::get()));
  }

 private:
  WorkPtr gloo_;
  Tensors outputs_;
};

Tensors flatten(const TensorLists& lists) {
  Tensors flat;
  for (const auto& list : lists) {
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return flat;
}

void check_reduction(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::PRODUCT:
      return;
    default:
      TORCH_CHECK(false, "Unsupported ReduceOp for HCCL process group");
  }
}

at::Tensor on_host(const at::Tensor& tensor) {
  TORCH_CHECK(is_device_tensor(tensor), "hccl works on hpu tensors only, got a tensor on ", tensor.device(), ".");
  return borrow_as_cpu(tensor);
}

Tensors on_host(const Tensors& tensors) {
  Tensors host;
  host.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    host.push_back(on_host(tensor));
  }
  return host;
}

TensorLists on_host(const TensorLists& lists) {
  TensorLists host;
  host.reserve(lists.size());
  for (const auto& list : lists) {
    host.push_back(on_host(list));
  }
  return host;
}

void count(const Tensors& payload) {
  // Whatever the graph holds has to have run before another card may read its results.
  graph_recorder().close();
  ++counters().collectives;
  for (const auto& tensor : payload) {
    counters().collective_bytes += static_cast<int64_t>(tensor.nbytes());
  }
}

class HcclBackend final : public c10d::Backend {
 public:
  explicit HcclBackend(BackendPtr gloo) : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }

  // Torch's kernels for CPU tensors look up the CPU backend of the group they are given; in this one it is the hccl backend.
  c10::intrusive_ptr<c10d::ProcessGroup> as_cpu_group() {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(getRank(), getSize());
    group->setBackend(
        c10::DeviceType::CPU,
        c10d::ProcessGroup::BackendType::CUSTOM,
        c10::intrusive_ptr<HcclBackend>::unsafe_reclaim_from_nonowning(this));
    return group;
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::BROADCAST, gloo_->broadcast(host, options), tensors);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check_reduction(options.reduceOp);
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::ALLREDUCE, gloo_->allreduce(host, options), tensors);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    check_reduction(options.reduceOp);
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::ALLREDUCE_COALESCED, gloo_->allreduce_coalesced(host, options), tensors);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    check_reduction(options.reduceOp);
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::REDUCE, gloo_->reduce(host, options), tensors);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count(inputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(c10d::OpType::ALLGATHER, gloo_->allgather(host_outputs, host_inputs, options), flatten(outputs));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    count({input});
    auto host_output = on_host(output);
    auto host_input = on_host(input);
    return work(c10d::OpType::_ALLGATHER_BASE, gloo_->_allgather_base(host_output, host_input, options), {output});
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count(inputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(
        c10d::OpType::COALESCED, gloo_->allgather_into_tensor_coalesced(host_outputs, host_inputs, options), outputs);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    count(inputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(c10d::OpType::GATHER, gloo_->gather(host_outputs, host_inputs, options), flatten(outputs));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    count(outputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(c10d::OpType::SCATTER, gloo_->scatter(host_outputs, host_inputs, options), outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count(flatten(inputs));
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(c10d::OpType::REDUCE_SCATTER, gloo_->reduce_scatter(host_outputs, host_inputs, options), outputs);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count({input});
    auto host_output = on_host(output);
    auto host_input = on_host(input);
    return work(
        c10d::OpType::_REDUCE_SCATTER_BASE, gloo_->_reduce_scatter_base(host_output, host_input, options), {output});
  }

  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count(inputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(
        c10d::OpType::COALESCED, gloo_->reduce_scatter_tensor_coalesced(host_outputs, host_inputs, options), outputs);
  }

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_split,
      std::vector<int64_t>& input_split,
      const c10d::AllToAllOptions& options) override {
    count({input});
    auto host_output = on_host(output);
    auto host_input = on_host(input);
    return work(
        c10d::OpType::ALLTOALL_BASE,
        gloo_->alltoall_base(host_output, host_input, output_split, input_split, options),
        {output});
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    count(inputs);
    auto host_outputs = on_host(outputs);
    auto host_inputs = on_host(inputs);
    return work(c10d::OpType::ALLTOALL, gloo_->alltoall(host_outputs, host_inputs, options), outputs);
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::SEND, gloo_->send(host, destination, tag), tensors);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    count(tensors);
    auto host = on_host(tensors);
    return work(c10d::OpType::RECV, gloo_->recv(host, source, tag), tensors);
  }

  // A barrier of the hosts: it does not wait for the device.
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

 private:
  static WorkPtr work(c10d::OpType type, WorkPtr gloo, Tensors outputs) {
    return c10::make_intrusive<HcclWork>(type, std::move(gloo), std::move(outputs));
  }

  BackendPtr gloo_;
};

// Boxed, so that one function serves every collective of every torch release: only the group is replaced.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "process_group") {
      auto& value = (*stack)[first + i];
      auto backend = value.toCustomClass<c10d::ProcessGroup>()->getBackend(c10::DeviceType::HPU);
      auto* hccl = dynamic_cast<HcclBackend*>(backend.get());
      TORCH_CHECK(
          hccl != nullptr, "Collectives on hpu tensors need the hccl backend, this group has ", backend->getBackendName(), ".");
      value = c10::IValue(hccl->as_cpu_group());
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

} // namespace

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

} // namespace hpu_sim
