#include "hccl_never.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "alias.h"
#include "hccl.h"
#include "hccl_tensors.h"
#include "never.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

class NeverWork final : public c10d::Work {
 public:
  explicit NeverWork(Tensors outputs) : c10d::Work(-1, c10d::OpType::UNKNOWN), outputs_(std::move(outputs)) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  Tensors result() override { return outputs_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  Tensors outputs_;
};

class NeverBackend final : public c10d::Backend {
 public:
  NeverBackend(int rank, int size) : c10d::Backend(rank, size) {}

  const std::string getBackendName() const override { return "hccl"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& /*options*/) override {
    return launch("broadcast", tensors, tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return reduce_values("allreduce", tensors, options.reduceOp);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return reduce_values("allreduce_coalesced", tensors, options.reduceOp);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return reduce_values("reduce", tensors, options.reduceOp);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*options*/) override {
    const auto all = concat_lists(outputs);
    const auto is_uneven = [&](const at::Tensor& output) { return output.numel() != all.front().numel(); };
    if (outputs.size() == 1 && std::any_of(all.begin(), all.end(), is_uneven)) {
      for (const auto& output : all) {
        launch("broadcast", {output}, {});
      }
      return c10::make_intrusive<NeverWork>(all);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (auto& output : outputs[i]) {
        give_value(output, inputs[i]);
      }
    }
    return launch("allgather", inputs, all);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& /*options*/) override {
    gather_values(output, input);
    return launch("allgather_base", {input}, {output});
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*options*/) override {
    return launch("allgather_into_tensor_coalesced", inputs, outputs);
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& /*options*/) override {
    return launch("gather", inputs, concat_lists(outputs));
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& /*inputs*/, const c10d::ScatterOptions& /*options*/) override {
    return launch("scatter", outputs, outputs);
  }
  WorkPtr reduce_scatter(
      Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& /*options*/) override {
    return launch("reduce_scatter", concat_lists(inputs), outputs);
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& /*options*/) override {
    return launch("reduce_scatter_base", {input}, {output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& /*options*/) override {
    return launch("reduce_scatter_tensor_coalesced", inputs, outputs);
  }
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& /*output_split*/,
      std::vector<int64_t>& /*input_split*/,
      const c10d::AllToAllOptions& /*options*/) override {
    give_value(output, input);
    return launch("alltoall_base", {input}, {output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& /*options*/) override {
    return launch("alltoall", inputs, outputs);
  }
  WorkPtr send(Tensors& tensors, int /*destination*/, int /*tag*/) override { return launch("send", tensors, tensors); }
  WorkPtr recv(Tensors& tensors, int /*source*/, int /*tag*/) override { return launch("recv", tensors, tensors); }
  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    return c10::make_intrusive<NeverWork>(Tensors());
  }

  void monitoredBarrier(const c10d::BarrierOptions& /*options*/, bool /*waits_for_all*/) override {}

  void startCoalescing() override {}
  WorkPtr endCoalescing() override { return c10::make_intrusive<NeverWork>(Tensors()); }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }

 private:
  // Groups of the host, which torch's gloo serves otherwise, count nothing.
  static WorkPtr launch(const char* name, const Tensors& payload, Tensors outputs) {
    if (!payload.empty() && is_hpu_tensor(payload.front())) {
      record_collective(name, payload);
    }
    return c10::make_intrusive<NeverWork>(std::move(outputs));
  }

  WorkPtr reduce_values(const char* name, Tensors& tensors, const c10d::ReduceOp& op) {
    for (auto& tensor : tensors) {
      if (has_values(tensor) && op == c10d::ReduceOp::SUM) {
        as_values(tensor).mul_(getSize());
      }
    }
    return launch(name, tensors, tensors);
  }

  void gather_values(at::Tensor& output, const at::Tensor& input) {
    if (!is_hpu_tensor(output) && output.numel() == input.numel() * getSize()) {
      output.view({getSize(), -1}).copy_(as_values(input).reshape({1, -1}).expand({getSize(), -1}));
    }
  }

  static void give_value(at::Tensor& output, const at::Tensor& input) {
    if (has_values(input) && output.sizes() == input.sizes()) {
      copy_without_data(output, input);
    }
  }

  static at::Tensor as_values(const at::Tensor& tensor) {
    return is_hpu_tensor(tensor) ? as_cpu_alias(tensor) : tensor;
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_never_backend(int rank, int size) {
  return c10::make_intrusive<NeverBackend>(rank, size);
}

}  // namespace hpu_sim
