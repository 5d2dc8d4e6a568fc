#include "hccl.h"

#include <string>

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "alias.h"
#include "counters.h"
#include "device_trace.h"
#include "dtypes.h"
#include "graph.h"
#include "observer.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// Gloo's work, whose result is the hpu tensors that the caller passed in rather than the CPU tensors borrowed from
// them.
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
          done.value();  // Throws the collective's error, if it failed.
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

void check_dtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kBFloat16:
    case at::kHalf:
    case at::kDouble:
    case at::kLong:
    case at::kInt:
    case at::kByte:
    case at::kChar:
    case at::kBool:
      return;
    default:
      TORCH_CHECK(
          is_float8(tensor.scalar_type()),
          "Input tensor data type is not supported for HCCL process group: ",
          tensor.scalar_type());
  }
}

at::Tensor on_host(const at::Tensor& tensor) {
  TORCH_CHECK(is_device_tensor(tensor), "hccl works on hpu tensors only, got a tensor on ", tensor.device(), ".");
  check_dtype(tensor);
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

// For collectives that only move bits: the bytes, since gloo has not every dtype. A new last dimension holds an
// element's bytes, so that pieces are still counted along the first dimension.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return on_host(tensor).unsqueeze(-1).view(at::kByte);
}

Tensors as_bytes(const Tensors& tensors) {
  Tensors bytes;
  bytes.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    bytes.push_back(as_bytes(tensor));
  }
  return bytes;
}

TensorLists as_bytes(const TensorLists& lists) {
  TensorLists bytes;
  bytes.reserve(lists.size());
  for (const auto& list : lists) {
    bytes.push_back(as_bytes(list));
  }
  return bytes;
}

// One dimension: collectives on a single tensor cut it into pieces by elements, whatever its shape.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.view(-1);
}

Tensors flat(const Tensors& tensors) {
  Tensors views;
  views.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    views.push_back(flat(tensor));
  }
  return views;
}

enum class Natives {
  kFloats,         // float32 and bfloat16, of an all-reduce
  kFloatsAndInts,  // int32 and int64 too, of a reduce-scatter
};

bool is_native(const at::Tensor& tensor, Natives natives) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kBFloat16 ||
         (natives == Natives::kFloatsAndInts && (dtype == at::kInt || dtype == at::kLong));
}

// The tensors of a reduction. HCCL reduces few dtypes; the bridge converts the others to float32, waits for the
// reduction and converts back, so integers beyond 2^24 and float64 lose digits.
class Reduction {
 public:
  Reduction(const Tensors& outputs, const Tensors& inputs, Natives natives)
      : outputs_(on_host(outputs)), inputs_(on_host(inputs)) {
    for (const auto& tensor : inputs_) {
      converted_ |= !is_native(tensor, natives);
    }
    if (converted_) {
      float_outputs_ = as_float(outputs_);
      float_inputs_ = as_float(inputs_);
    }
  }

  Tensors& outputs() { return converted_ ? float_outputs_ : outputs_; }
  Tensors& inputs() { return converted_ ? float_inputs_ : inputs_; }

  void finish(const WorkPtr& work) {
    if (!converted_) {
      return;
    }
    work->wait();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i].copy_(float_outputs_[i]);
    }
  }

 private:
  static Tensors as_float(const Tensors& tensors) {
    Tensors floats;
    floats.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      floats.push_back(tensor.to(at::kFloat));
    }
    return floats;
  }

  Tensors outputs_;
  Tensors inputs_;
  Tensors float_outputs_;
  Tensors float_inputs_;
  bool converted_ = false;
};

// The collective that this thread is about to hand to gloo, while a profile is recorded; begin 0: none.
thread_local Interval collective_in_making{};

// Ends the interval of that collective when gloo is done, in one of gloo's threads.
void trace_until_done(c10d::OpType type, const WorkPtr& gloo) {
  // Gloo's work of sending and receiving cannot be asked to tell its end.
  if (collective_in_making.begin != 0 && type != c10d::OpType::SEND && type != c10d::OpType::RECV) {
    gloo->getFuture()->addCallback([interval = collective_in_making](c10::ivalue::Future&) mutable {
      interval.end = wall_clock();
      add_to_device_trace(interval);
    });
  }
  collective_in_making.begin = 0;
}

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
    collective_in_making = {"collective", name, wall_clock(), 0, this_thread(), bytes};
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
    count("broadcast", tensors);
    auto bytes = as_bytes(tensors);
    return work(c10d::OpType::BROADCAST, gloo_->broadcast(bytes, options), tensors);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check_reduction(options.reduceOp);
    count("allreduce", tensors);
    return in_place(c10d::OpType::ALLREDUCE, tensors, [&](Tensors& host) { return gloo_->allreduce(host, options); });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    check_reduction(options.reduceOp);
    count("allreduce_coalesced", tensors);
    return in_place(c10d::OpType::ALLREDUCE_COALESCED, tensors, [&](Tensors& host) {
      return gloo_->allreduce_coalesced(host, options);
    });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    check_reduction(options.reduceOp);
    count("reduce", tensors);
    return in_place(c10d::OpType::REDUCE, tensors, [&](Tensors& host) { return gloo_->reduce(host, options); });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count("allgather", inputs);
    auto to = as_bytes(outputs);
    auto from = as_bytes(inputs);
    return work(c10d::OpType::ALLGATHER, gloo_->allgather(to, from, options), flatten(outputs));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    count("allgather_base", {input});
    auto to = as_bytes(flat(output));
    auto from = as_bytes(flat(input));
    return work(c10d::OpType::_ALLGATHER_BASE, gloo_->_allgather_base(to, from, options), {output});
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    count("allgather_into_tensor_coalesced", inputs);
    auto to = as_bytes(flat(outputs));
    auto from = as_bytes(flat(inputs));
    return work(c10d::OpType::COALESCED, gloo_->allgather_into_tensor_coalesced(to, from, options), outputs);
  }
#endif

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    count("gather", inputs);
    auto to = as_bytes(outputs);
    auto from = as_bytes(inputs);
    return work(c10d::OpType::GATHER, gloo_->gather(to, from, options), flatten(outputs));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    count("scatter", outputs);
    auto to = as_bytes(outputs);
    auto from = as_bytes(inputs);
    return work(c10d::OpType::SCATTER, gloo_->scatter(to, from, options), outputs);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count("reduce_scatter", flatten(inputs));
    // One list of one tensor per rank: the lists are flattened for the conversion and taken apart again.
    Reduction reduction(outputs, flatten(inputs), Natives::kFloats);
    TensorLists lists;
    auto next = reduction.inputs().begin();
    for (const auto& list : inputs) {
      lists.emplace_back(next, next + static_cast<int64_t>(list.size()));
      next += static_cast<int64_t>(list.size());
    }
    auto gloo = gloo_->reduce_scatter(reduction.outputs(), lists, options);
    reduction.finish(gloo);
    return work(c10d::OpType::REDUCE_SCATTER, std::move(gloo), outputs);
  }

  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count("reduce_scatter_base", {input});
    Reduction reduction({flat(output)}, {flat(input)}, Natives::kFloatsAndInts);
    auto gloo = gloo_->_reduce_scatter_base(reduction.outputs()[0], reduction.inputs()[0], options);
    reduction.finish(gloo);
    return work(c10d::OpType::_REDUCE_SCATTER_BASE, std::move(gloo), {output});
  }

#if HPU_SIM_TORCH >= 201
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    check_reduction(options.reduceOp);
    count("reduce_scatter_tensor_coalesced", inputs);
    Reduction reduction(flat(outputs), flat(inputs), Natives::kFloatsAndInts);
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
    count("alltoall_base", {input});
    auto to = as_bytes(output);
    auto from = as_bytes(input);
    return work(
        c10d::OpType::ALLTOALL_BASE, gloo_->alltoall_base(to, from, output_split, input_split, options), {output});
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    count("alltoall", inputs);
    auto to = as_bytes(outputs);
    auto from = as_bytes(inputs);
    return work(c10d::OpType::ALLTOALL, gloo_->alltoall(to, from, options), outputs);
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    count("send", tensors);
    auto bytes = as_bytes(tensors);
    return work(c10d::OpType::SEND, gloo_->send(bytes, destination, tag), tensors);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    count("recv", tensors);
    auto bytes = as_bytes(tensors);
    return work(c10d::OpType::RECV, gloo_->recv(bytes, source, tag), tensors);
  }

  // A barrier of the hosts: it does not wait for the device.
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

 private:
  static WorkPtr work(c10d::OpType type, WorkPtr gloo, Tensors outputs) {
    trace_until_done(type, gloo);
    return c10::make_intrusive<HcclWork>(type, std::move(gloo), std::move(outputs));
  }

  template <typename Reduce>
  WorkPtr in_place(c10d::OpType type, const Tensors& tensors, const Reduce& reduce) {
    Reduction reduction(tensors, tensors, Natives::kFloats);
    // Gloo reduces in place: only one of the two sets of tensors takes part.
    auto gloo = reduce(reduction.outputs());
    reduction.finish(gloo);
    return work(type, std::move(gloo), tensors);
  }

  BackendPtr gloo_;
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
