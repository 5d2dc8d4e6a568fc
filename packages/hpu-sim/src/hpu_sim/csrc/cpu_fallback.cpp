#include "cpu_fallback.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "alias.h"
#include "allocator.h"
#include "autograd_threads.h"
#include "counters.h"
#include "device_trace.h"
#include "diagnostics.h"
#include "dtypes.h"
#include "generator.h"
#include "graph.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

constexpr c10::DispatchKeySet kCpuKeys(c10::DispatchKey::CPU);

// As on every accelerator, index tensors and packed lengths may be CPU tensors beside hpu data.
bool allows_cpu_tensor(const c10::Argument& argument) {
  return argument.name() == "indices" || argument.name() == "lengths";
}

// Properties of an operator, read from its schema once per thread.
struct OpTraits {
  uint64_t op_hash;
  bool returns_cpu_tensor;  // as `_pack_padded_sequence`, whose batch sizes stay on the CPU
  bool uses_default_generator;
  bool is_advanced_index;  // synchronizing with a mask only, whose true elements determine the shape
  bool is_synchronizing;
  std::vector<bool> is_written;         // per argument
  std::vector<bool> allows_cpu_tensor;  // per argument
};

OpTraits make_op_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  OpTraits traits{};
  traits.op_hash = reinterpret_cast<uintptr_t>(&schema);
  traits.returns_cpu_tensor = name == "aten::_pack_padded_sequence";
  traits.is_advanced_index = name == "aten::index" || name == "aten::_unsafe_index";
  traits.is_synchronizing = !traits.is_advanced_index &&
                            (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape));
  traits.uses_default_generator = op.hasTag(at::Tag::nondeterministic_seeded);
  for (const auto& argument : schema.arguments()) {
    traits.is_written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    traits.allows_cpu_tensor.push_back(allows_cpu_tensor(argument));
    if (argument.name() == "generator") {
      traits.uses_default_generator = false;
    }
  }
  return traits;
}

const OpTraits& op_traits(const c10::OperatorHandle& op) {
  // Per thread, to spare a lock. Schemas live as long as the process.
  thread_local std::unordered_map<const c10::FunctionSchema*, OpTraits> cache;
  const auto* schema = &op.schema();
  auto found = cache.find(schema);
  if (found == cache.end()) {
    found = cache.emplace(schema, make_op_traits(op)).first;
  }
  return found->second;
}

uint64_t hash_metadata(const at::Tensor& tensor) {
  uint64_t hash = static_cast<uint64_t>(tensor.scalar_type());
  for (const auto size : tensor.sizes()) {
    hash = hash_combine(hash, static_cast<uint64_t>(size));
  }
  return hash;
}

[[noreturn]] void throw_unsupported_layout(const c10::OperatorHandle& op, c10::Layout layout) {
  const std::string& name = op.operator_name().name;
  throw_unsupported(name, "hpu tensors must be dense (simulated), but ", name, " returns one with layout ", layout);
}

// For operators that create a sparse tensor from dense ones, as the backward pass of a sparse embedding does.
void throw_sparse_output(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  throw_unsupported_layout(op, at::kSparse);
}

// One call of an operator: aliases its inputs as CPU tensors, runs the CPU kernel, aliases the outputs as hpu tensors.
class CpuFallbackCall {
 public:
  CpuFallbackCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), traits_(op_traits(op)), stack_(stack) {}

  void alias_inputs_as_cpu() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = stack_.size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) {
      alias_input(stack_[first + i], i, arguments[i]);
    }
    check_devices();
    check_generator();
    if (graph_recorder().lazy()) {
      const auto describe = [this] { return describe_inputs(); };
      graph_recorder().add({traits_.op_hash, input_hash_, op_.operator_name().name, describe});
    }
    if (C10_UNLIKELY(traits_.is_synchronizing || (traits_.is_advanced_index && has_mask_))) {
      record_host_sync(op_.operator_name().name);
    }
  }

  void run() {
    const ScopedTraceEvent timed("kernel", op_.operator_name().name.c_str());
    if (C10_UNLIKELY(traits_.uses_default_generator)) {
      const DefaultGeneratorSwap swap;
      op_.redispatchBoxed(kCpuKeys, &stack_);
    } else {
      op_.redispatchBoxed(kCpuKeys, &stack_);
    }
  }

  void alias_outputs_as_hpu() {
    for (const auto& arg : aliased_args_) {
      if (arg.is_written) {
        sync_metadata(arg.hpu, arg.cpu);
      }
    }
    const size_t count = op_.schema().returns().size();
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      alias_output(stack_[i]);
    }
  }

 private:
  struct AliasedArg {
    at::Tensor hpu;
    at::Tensor cpu;
    bool is_written;
  };

  at::Tensor as_cpu_input(const at::Tensor& tensor, size_t argument) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!is_hpu_tensor(tensor)) {
      if (tensor.dim() > 0 && tensor.device().is_cpu() && !traits_.allows_cpu_tensor[argument]) {
        cpu_argument_ = static_cast<int64_t>(argument);
      }
      return tensor;
    }
    if (graph_recorder().lazy()) {
      input_hash_ = hash_combine(input_hash_, hash_metadata(tensor));
    }
    has_mask_ |= traits_.is_advanced_index && argument > 0 &&
                 (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    aliased_args_.push_back({tensor, as_cpu_alias(tensor), traits_.is_written[argument]});
    return aliased_args_.back().cpu;
  }

  void alias_input(c10::IValue& value, size_t index, const c10::Argument& argument) {
    if (value.isTensor()) {
      value = as_cpu_input(value.toTensor(), index);
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& tensor : tensors) {
        tensor = as_cpu_input(tensor, index);
      }
      value = c10::List<at::Tensor>(std::move(tensors));
    } else if (value.isOptionalTensorList()) {
      c10::List<Optional<at::Tensor>> tensors;
      for (const Optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        tensors.push_back(tensor.has_value() ? Optional<at::Tensor>(as_cpu_input(*tensor, index)) : kNone);
      }
      value = std::move(tensors);
    } else if (value.isDevice() && value.toDevice().type() == c10::DeviceType::HPU) {
      value = c10::Device(c10::DeviceType::CPU);
      has_hpu_device_arg_ = true;
    } else if (value.isGenerator()) {
      value = unwrap_generator(value.toGenerator());
    } else if (value.isNone() && argument.name() == "generator") {
      value = cpu_generator(default_generator());
    }
  }

  at::Generator unwrap_generator(const at::Generator& generator) {
    const bool is_hpu = generator.device().type() == c10::DeviceType::HPU;
    has_cpu_generator_ = !is_hpu;
    has_hpu_generator_ = is_hpu;
    return is_hpu ? cpu_generator(generator) : generator;
  }

  void check_generator() const {
    const bool is_hpu = has_hpu_device_arg_ || !aliased_args_.empty();
    TORCH_CHECK(!(has_cpu_generator_ && is_hpu), "Expected a 'hpu' device type for generator but found 'cpu'");
    TORCH_CHECK(!(has_hpu_generator_ && !is_hpu), "Expected a 'cpu' device type for generator but found 'hpu'");
  }

  void check_devices() const {
    if (C10_LIKELY(cpu_argument_ < 0) || aliased_args_.empty()) {
      return;
    }
    const auto& schema = op_.schema();
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu! (when checking "
        "argument for argument ",
        schema.arguments()[cpu_argument_].name(),
        " in method ",
        schema.operator_name(),
        ")");
  }

  std::string describe_inputs() const {
    std::string text;
    for (const auto& arg : aliased_args_) {
      text += (text.empty() ? "" : ", ") + describe(arg.hpu);
    }
    return text;
  }

  void alias_output(c10::IValue& value) {
    if (value.isTensor()) {
      value = as_hpu_output(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      auto tensors = std::move(value).toTensorVector();
      for (auto& tensor : tensors) {
        tensor = as_hpu_output(std::move(tensor));
      }
      value = c10::List<at::Tensor>(std::move(tensors));
    }
  }

  at::Tensor as_hpu_output(at::Tensor cpu) {
    if (!cpu.defined() || !cpu.device().is_cpu()) {
      return cpu;
    }
    if (C10_UNLIKELY(cpu.layout() != at::kStrided)) {
      throw_unsupported_layout(op_, cpu.layout());
    }
    if (C10_UNLIKELY(cpu.is_quantized())) {
      const std::string& name = op_.operator_name().name;
      throw_unsupported(name, "hpu tensors cannot be quantized (simulated), but ", name, " returns a quantized one.");
    }
    if (traits_.returns_cpu_tensor && cpu.scalar_type() == at::kLong) {
      return cpu;
    }
    auto storage = cpu.storage();
    // Two references, the result's and this one, mean new memory: the common case.
    if (C10_UNLIKELY(storage.use_count() > 2)) {
      for (const auto& arg : aliased_args_) {
        if (arg.cpu.is_same(cpu)) {
          return arg.hpu;  // The argument itself, as of in-place and out variants.
        }
      }
      for (const auto& arg : aliased_args_) {
        if (arg.cpu.storage().is_alias_of(storage)) {
          return as_hpu_tensor(std::move(cpu), arg.hpu.storage());  // A view of an argument.
        }
      }
      for (const auto& [known, hpu_storage] : output_storages_) {
        if (known.is_alias_of(storage)) {
          return as_hpu_tensor(std::move(cpu), hpu_storage);  // Two results that share a storage.
        }
      }
    }
    check_dtype_on_device(cpu.scalar_type(), op_.operator_name().name);
    auto hpu_storage = wrap_cpu_storage(storage);
    if (op_.schema().returns().size() > 1) {
      output_storages_.emplace_back(std::move(storage), hpu_storage);
    }
    return as_hpu_tensor(std::move(cpu), std::move(hpu_storage));
  }

  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  torch::jit::Stack& stack_;
  c10::SmallVector<AliasedArg, 6> aliased_args_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> output_storages_;
  uint64_t input_hash_ = 0;
  int64_t cpu_argument_ = -1;
  bool has_mask_ = false;
  bool has_hpu_device_arg_ = false;
  bool has_cpu_generator_ = false;
  bool has_hpu_generator_ = false;
};

}  // namespace

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ensure_acquired();
  sync_intraop_threads();
  CpuFallbackCall call(op, *stack);
  call.alias_inputs_as_cpu();
  call.run();
  call.alias_outputs_as_hpu();
}

TORCH_LIBRARY_IMPL(_, HPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}

TORCH_LIBRARY_IMPL(_, SparseHPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&throw_sparse_output>());
}

}  // namespace hpu_sim
