#include "execution.h"

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ops/empty_strided.h>

#include "ivalue_tensors.h"
#include "recipe_key.h"

namespace hpu_sim {
namespace {

// What is known of a call: its tensors and its results, without memory.
struct Inferred {
  std::vector<at::Tensor> metas;
  torch::jit::Stack results;
};

// Many of torch's Meta kernels are written in Python, and take longer than the kernel of a small tensor.
constexpr size_t kMaxInferred = 100'000;

constexpr uint64_t kNoArgument = ~uint64_t{0};  // hash of a number, and of an undefined tensor

std::unordered_map<uint64_t, Inferred>& known_calls() {
  // Never destroyed: tensors that Python has made may need the interpreter.
  thread_local auto* calls = new std::unordered_map<uint64_t, Inferred>();
  return *calls;
}

class MetaCall {
 public:
  MetaCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : op_(op),
        first_(stack.size() - op.schema().arguments().size()),
        arguments_(stack.begin() + static_cast<std::ptrdiff_t>(first_), stack.end()),
        key_(hash_combine(std::hash<c10::OperatorName>()(op.operator_name()), hash_arguments(op, arguments_))) {
    key_ = hash_combine(key_, static_cast<uint64_t>(at::get_default_dtype_as_scalartype()));
    for (auto& value : arguments_) {
      add(value);
    }
  }

  // Runs the checks of the operator, unless a call like this one has passed them, and returns its results on the CPU.
  torch::jit::Stack run() {
    auto& calls = known_calls();
    auto found = calls.find(key_);
    if (found == calls.end()) {
      if (calls.size() >= kMaxInferred) {
        calls.clear();
      }
      found = calls.emplace(key_, infer()).first;
    }
    torch::jit::Stack results = found->second.results;
    for (auto& value : results) {
      replace_tensors(value, [&](const at::Tensor& meta) { return cpu_of(meta, found->second.metas); });
    }
    return results;
  }

  size_t first() const { return first_; }

 private:
  // Collects the tensors of an argument. What the types of the arguments tell is part of the key.
  void add(c10::IValue& value) {
    if (replace_tensors(value, [this](const at::Tensor& tensor) { return add(tensor); })) {
      return;
    }
    const int kind = value.isInt() ? 1 : value.isDouble() ? 2 : value.isBool() ? 3 : value.isComplexDouble() ? 4 : 0;
    key_ = hash_combine(key_, kind);
    if (value.isDevice() && value.toDevice().is_cpu()) {
      value = c10::Device(c10::DeviceType::Meta);
    }
  }

  at::Tensor add(const at::Tensor& cpu) {
    if (!cpu.defined() || !cpu.device().is_cpu() || cpu.unsafeGetTensorImpl()->is_wrapped_number()) {
      key_ = hash_combine(key_, kNoArgument);
      return cpu;
    }
    size_t index = 0;
    while (index < cpus_.size() && !cpus_[index].is_same(cpu)) {
      ++index;
    }
    key_ = hash_combine(key_, index);
    if (index == cpus_.size()) {
      cpus_.push_back(cpu);
    }
    return cpu;
  }

  Inferred infer() {
    Inferred result;
    for (const auto& cpu : cpus_) {
      result.metas.push_back(at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options().device(at::kMeta)));
    }
    result.results = arguments_;
    for (auto& value : result.results) {
      replace_tensors(value, [&](const at::Tensor& tensor) {
        for (size_t i = 0; i < cpus_.size(); ++i) {
          if (cpus_[i].is_same(tensor)) {
            return result.metas[i];
          }
        }
        return tensor;
      });
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &result.results);
    for (size_t i = 0; i < cpus_.size(); ++i) {
      const auto& meta = result.metas[i];
      TORCH_CHECK(cpus_[i].sizes() == meta.sizes() && cpus_[i].strides() == meta.strides(), "a resized argument");
    }
    return result;
  }

  at::Tensor cpu_of(const at::Tensor& meta, const std::vector<at::Tensor>& metas) const {
    if (!meta.defined() || !meta.is_meta()) {
      return meta;
    }
    for (size_t i = 0; i < metas.size(); ++i) {
      if (metas[i].is_same(meta)) {
        return cpus_[i];
      }
    }
    for (size_t i = 0; i < metas.size(); ++i) {
      if (metas[i].storage().is_alias_of(meta.storage())) {
        const auto& cpu = cpus_[i];
        return cpu.as_strided(meta.sizes(), meta.strides(), cpu.storage_offset() + meta.storage_offset());
      }
    }
    return at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(at::kCPU));
  }

  const c10::OperatorHandle& op_;
  size_t first_;
  torch::jit::Stack arguments_;
  uint64_t key_;
  std::vector<at::Tensor> cpus_;
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
