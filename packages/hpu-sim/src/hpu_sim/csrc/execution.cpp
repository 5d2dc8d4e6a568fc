#include "execution.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include "fork_safety.h"
#include "ivalue_tensors.h"
#include "recipe_key.h"

namespace hpu_sim {
namespace {

using InferredPtr = std::shared_ptr<const InferredCall>;

constexpr size_t kMaxInferred = 100'000;

constexpr uint64_t kNoMemory = ~uint64_t{0};  // hash of a number, of an undefined tensor, and of one without memory

// Never destroyed: tensors that Python has made may need the interpreter.
ForkSafeMutex& inferred_mutex = *new ForkSafeMutex();
auto& inferred_calls = *new std::unordered_map<uint64_t, InferredPtr>();

size_t position(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  size_t index = 0;
  while (index < tensors.size() && !tensors[index].is_same(tensor)) {
    ++index;
  }
  return index;
}

uint64_t hash_types(const c10::IValue& value) {
  uint64_t hash = value.isInt() ? 1 : value.isDouble() ? 2 : value.isBool() ? 3 : value.isComplexDouble() ? 4 : 0;
  if (value.isList() && !value.isTensorList()) {
    for (const c10::IValue& item : value.toListRef()) {
      hash = hash_combine(hash, hash_types(item));
    }
  }
  return hash;
}

// Returns the key of a call. What the types of the arguments tell is part of it.
uint64_t key_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, std::vector<at::Tensor>& given) {
  uint64_t key = hash_combine(std::hash<c10::OperatorName>()(op.operator_name()), hash_arguments(op, arguments));
  key = hash_combine(key, static_cast<uint64_t>(at::get_default_dtype_as_scalartype()));
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.is_meta() || is_wrapped_number(tensor)) {
        key = hash_combine(key, kNoMemory);
        return;
      }
      const size_t index = position(given, tensor);
      key = hash_combine(hash_combine(key, index), static_cast<uint64_t>(tensor.dim()));
      if (index == given.size()) {
        given.push_back(tensor);
      }
    });
    key = hash_combine(key, hash_types(value));
  }
  return key;
}

bool is_norm(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::native_layer_norm",
      "aten::native_group_norm",
      "aten::native_batch_norm",
      "aten::_native_batch_norm_legit",
      "aten::_native_batch_norm_legit_no_training"};
  return names.count(name) != 0;
}

void cast_like(c10::IValue& gradient, const c10::IValue& value) {
  if (gradient.isTensor() && gradient.toTensor().defined() && value.isTensor() && value.toTensor().defined()) {
    gradient = gradient.toTensor().to(value.toTensor().scalar_type());
  }
}

// Torch's Meta kernels of norms are those of CUDA. The CPU's compute statistics in the dtype of the parameters, or in
// that of the input if there are none, and batch norm has none in evaluation. The gradient of the input has its dtype,
// and those of the parameters have theirs, which the Meta kernel of layer norm in torch 2.0 does not know. Batch norm
// computes the first one if asked to.
void correct_norm(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, torch::jit::Stack& results) {
  const std::string& name = op.operator_name().name;
  if (C10_UNLIKELY(name == "aten::native_group_norm_backward")) {
    cast_like(results[0], arguments[1]);
  } else if (C10_UNLIKELY(name == "aten::native_layer_norm_backward")) {
    cast_like(results[1], arguments[5]);
    cast_like(results[2], arguments[6]);
  } else if (C10_UNLIKELY(name == "aten::native_batch_norm_backward")) {
    if (!arguments.back().toBoolList().get(0)) {
      results[0] = at::Tensor();
    }
  } else if (C10_UNLIKELY(is_norm(name))) {
    auto dtype = arguments[0].toTensor().scalar_type();
    bool has_statistics = name.find("batch_norm") == std::string::npos;
    bool has_parameter = false;
    for (size_t i = 1; i < arguments.size(); ++i) {
      if (!has_parameter && arguments[i].isTensor() && arguments[i].toTensor().defined()) {
        dtype = arguments[i].toTensor().scalar_type();
        has_parameter = true;
      }
      has_statistics |= op.schema().arguments()[i].name() == "training" && arguments[i].toBool();
    }
    for (size_t i = 1; i < results.size(); ++i) {
      const auto& result = results[i].toTensor();
      results[i] = has_statistics ? result.to(dtype) : at::empty({0}, result.options().dtype(dtype));
    }
  }
}

// The CPU's convolutions keep the memory format of the input or of the weight, and those of torch's Meta kernel do not.
void correct_convolution(const torch::jit::Stack& arguments, torch::jit::Stack& results) {
  for (const size_t i : {0, 1}) {
    const auto format = arguments[i].toTensor().suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous) {
      results[0] = results[0].toTensor().contiguous(format);
      return;
    }
  }
}

// Returns whether the results of an operator have other strides than those of its Meta kernel.
bool has_other_strides(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::log_sigmoid_forward", "aten::pixel_shuffle", "aten::roll", "aten::rrelu_with_noise"};
  return names.count(name) != 0;
}

// Returns whether torch's Meta kernel of an operator raises the alert of CUDA's. The other kernel must not run beside
// it without torch's flag, so a call like that runs now.
bool alerts(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::median", "aten::nanmedian", "aten::histc", "aten::max_unpool2d", "aten::max_unpool3d"};
  return at::globalContext().deterministicAlgorithms() && names.count(name) != 0;
}

InferredPtr run_meta_kernel(
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const std::vector<at::Tensor>& given) {
  const auto result = std::make_shared<InferredCall>();
  for (const auto& tensor : given) {
    result->metas.push_back(
        at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(at::kMeta).dtype(tensor.dtype())));
  }
  result->results = arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = result->results[i];
    if (replace_tensors(value, [&](const at::Tensor& tensor) {
          const size_t index = tensor.defined() ? position(given, tensor) : given.size();
          // A kernel in Python gives a number a Python object, which the caller's must not have.
          return index < given.size() ? result->metas[index] : copy_wrapped_number(tensor);
        })) {
      continue;
    }
    if (value.isDevice()) {
      value = c10::Device(c10::DeviceType::Meta);
    } else if (value.isGenerator()) {
      value = c10::IValue();
    } else if (value.isBool() && op.schema().arguments()[i].name() == "pin_memory") {
      value = false;
    }
  }
  // In a plan, where no other kernel runs meanwhile, without torch's flag.
  auto& context = at::globalContext();
  const bool alerts = context.deterministicAlgorithms();
  const bool only_warns = context.deterministicAlgorithmsWarnOnly();
  if (is_planning()) {
    context.setDeterministicAlgorithms(false, only_warns);
  }
  const auto restore = c10::make_scope_exit([&] {
    if (is_planning()) {
      context.setDeterministicAlgorithms(alerts, only_warns);
    }
  });
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &result->results);
  if (op.operator_name().name == "aten::convolution") {
    correct_convolution(arguments, result->results);
  } else {
    correct_norm(op, arguments, result->results);
  }
  return result;
}

}  // namespace

int InferredCall::find(const at::Tensor& result, bool shares_memory) const {
  for (size_t i = 0; i < metas.size(); ++i) {
    if (shares_memory ? metas[i].storage().is_alias_of(result.storage()) : metas[i].is_same(result)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

torch::jit::Stack InferredCall::with_memory(
    const std::vector<at::Tensor>& given,
    c10::DispatchKey key,
    const std::function<c10::Storage(const at::Tensor&)>& make_storage) const {
  std::vector<std::pair<c10::Storage, c10::Storage>> made;
  const auto tensor_over = [key](c10::Storage storage, const at::Tensor& meta, int64_t offset) {
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), meta.dtype());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(), offset + meta.storage_offset());
    return tensor;
  };
  torch::jit::Stack values = results;
  for (auto& value : values) {
    replace_tensors(value, [&](const at::Tensor& meta) {
      if (!meta.defined() || !meta.is_meta()) {
        return meta;
      }
      int index = find(meta, /*shares_memory=*/false);
      if (index >= 0) {
        return given[static_cast<size_t>(index)];
      }
      index = find(meta, /*shares_memory=*/true);
      if (index >= 0) {
        const auto& base = given[static_cast<size_t>(index)];
        return tensor_over(base.storage(), meta, base.storage_offset());
      }
      for (const auto& [known, storage] : made) {
        if (known.is_alias_of(meta.storage())) {
          return tensor_over(storage, meta, 0);
        }
      }
      made.emplace_back(meta.storage(), make_storage(meta));
      return tensor_over(made.back().second, meta, 0);
    });
  }
  return values;
}

InferredPtr infer(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, std::vector<at::Tensor>& given) {
  const uint64_t key = key_of(op, arguments, given);
  {
    const std::lock_guard<std::mutex> lock(inferred_mutex);
    const auto found = inferred_calls.find(key);
    if (found != inferred_calls.end()) {
      return found->second;
    }
  }
  auto result = run_meta_kernel(op, arguments, given);
  std::unordered_map<uint64_t, InferredPtr> dropped;  // Destroyed without the mutex, as it may need Python's lock.
  const std::lock_guard<std::mutex> lock(inferred_mutex);
  if (inferred_calls.size() >= kMaxInferred) {
    dropped.swap(inferred_calls);
  }
  inferred_calls[key] = result;
  return result;
}

bool infer_results(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta) || alerts(name) || has_other_strides(name)) {
    return false;
  }
  const size_t first = stack.size() - op.schema().arguments().size();
  std::vector<at::Tensor> given;
  InferredPtr inferred;
  try {
    const torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
    inferred = infer(op, arguments, given);
  } catch (const std::exception&) {
    return false;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& meta = inferred->metas[i];
    if (given[i].sizes() != meta.sizes() || given[i].strides() != meta.strides()) {
      return false;
    }
  }
  const auto results = inferred->with_memory(given, c10::DispatchKey::CPU, [](const at::Tensor& meta) {
    const size_t bytes = meta.storage().nbytes();
    return c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::GetCPUAllocator(), /*resizable=*/true);
  });
  stack.resize(first);
  stack.insert(stack.end(), results.begin(), results.end());
  return true;
}

}  // namespace hpu_sim
