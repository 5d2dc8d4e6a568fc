#include "execution.h"

#include <utility>
#include <vector>

#include <ATen/ops/empty_strided.h>

#include "ivalue_tensors.h"

namespace hpu_sim {
namespace {

// A CPU tensor, and one with its sizes and no memory.
using Pair = std::pair<at::Tensor, at::Tensor>;

class MetaCall {
 public:
  MetaCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : op_(op),
        first_(stack.size() - op.schema().arguments().size()),
        arguments_(stack.begin() + first_, stack.end()) {
    for (auto& value : arguments_) {
      to_meta(value);
    }
  }

  // Runs the checks of the operator, and returns its results on the CPU.
  torch::jit::Stack run() {
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments_);
    for (const auto& [cpu, meta] : pairs_) {
      TORCH_CHECK(cpu.sizes() == meta.sizes() && cpu.strides() == meta.strides(), "a resized argument");
    }
    for (auto& value : arguments_) {
      replace_tensors(value, [this](const at::Tensor& tensor) { return cpu_of(tensor); });
    }
    return std::move(arguments_);
  }

  size_t first() const { return first_; }

 private:
  at::Tensor meta_of(const at::Tensor& cpu) {
    if (!cpu.defined() || !cpu.device().is_cpu() || cpu.unsafeGetTensorImpl()->is_wrapped_number()) {
      return cpu;
    }
    for (const auto& [known, meta] : pairs_) {
      if (known.is_same(cpu)) {
        return meta;
      }
    }
    pairs_.emplace_back(cpu, at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options().device(at::kMeta)));
    return pairs_.back().second;
  }

  void to_meta(c10::IValue& value) {
    if (replace_tensors(value, [this](const at::Tensor& tensor) { return meta_of(tensor); })) {
      return;
    }
    if (value.isDevice() && value.toDevice().is_cpu()) {
      value = c10::Device(c10::DeviceType::Meta);
    }
  }

  at::Tensor cpu_of(const at::Tensor& meta) const {
    if (!meta.defined() || !meta.is_meta()) {
      return meta;
    }
    for (const auto& [cpu, known] : pairs_) {
      if (known.is_same(meta)) {
        return cpu;
      }
    }
    for (const auto& [cpu, known] : pairs_) {
      if (known.storage().is_alias_of(meta.storage())) {
        return cpu.as_strided(meta.sizes(), meta.strides(), cpu.storage_offset() + meta.storage_offset());
      }
    }
    return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(at::kCPU));
  }

  const c10::OperatorHandle& op_;
  size_t first_;
  torch::jit::Stack arguments_;
  std::vector<Pair> pairs_;
};

}  // namespace

bool infer_results(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  torch::jit::Stack results;
  size_t first = 0;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    return false;
  }
  try {
    MetaCall call(op, stack);
    first = call.first();
    results = call.run();
  } catch (const std::exception&) {
    return false;
  }
  stack.resize(first);
  for (auto& result : results) {
    stack.push_back(std::move(result));
  }
  return true;
}

}  // namespace hpu_sim
