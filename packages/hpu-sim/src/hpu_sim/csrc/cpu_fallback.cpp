#include "cpu_fallback.h"

#include <functional>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/core/enum_tag.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "alias.h"
#include "allocator.h"
#include "autograd_threads.h"
#include "counters.h"
#include "deferred.h"
#include "device_trace.h"
#include "diagnostics.h"
#include "dtypes.h"
#include "execution.h"
#include "generator.h"
#include "graph.h"
#include "ivalue_tensors.h"
#include "low_precision.h"
#include "pipeline.h"
#include "recipe_key.h"
#include "strict.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

// As on every accelerator, index tensors and packed lengths may be CPU tensors beside hpu data.
bool allows_cpu_tensor(const c10::Argument& argument) {
  return argument.name() == "indices" || argument.name() == "lengths";
}

bool is_advanced_index(const std::string& name) {
  return name == "aten::index" || name == "aten::_unsafe_index";
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

[[noreturn]] void throw_unsupported_layout(const c10::OperatorHandle& op, c10::Layout layout) {
  const std::string& name = op.operator_name().name;
  throw_unsupported(name, "hpu tensors must be dense (simulated), but ", name, " returns one with layout ", layout);
}

// For operators that create a sparse tensor from dense ones, as the backward pass of a sparse embedding does.
void throw_sparse_output(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  throw_unsupported_layout(op, at::kSparse);
}

// Returns whether the bridge gives the operator's results the memory format of its inputs. It allocates all others
// contiguous, whatever the strides of the inputs.
bool suggests_memory_format(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::gelu",
      "aten::cumsum",
      "aten::topk",
      "aten::sort",
      "aten::max",
      "aten::min",
      "aten::constant_pad_nd",
      "aten::convolution",
      "aten::convolution_overrideable",
      "aten::convolution_backward"};
  return names.count(name) != 0;
}

bool has_card_strides(const at::Tensor& result, const std::string& name) {
  return result.is_contiguous() ||
         (suggests_memory_format(name) && (result.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                                           result.is_contiguous(at::MemoryFormat::ChannelsLast3d)));
}

// One call of an operator: aliases its inputs as CPU tensors, runs the CPU kernel, aliases the outputs as hpu tensors.
class CpuFallbackCall {
 public:
  CpuFallbackCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void alias_inputs_as_cpu() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = first_ = stack_.size() - arguments.size();
    mode_ = pipeline().enqueue() ? ExecutionMode::kNever : execution_mode();
    for (size_t i = 0; i < arguments.size(); ++i) {
      alias_input(stack_[first + i], arguments[i], i);
    }
    check_devices();
    check_generator();
    if (graph_recorder().lazy()) {
      const c10::ArrayRef<c10::IValue> values(&stack_[first], arguments.size());
      const auto describe = [&] { return describe_arguments(op_, values); };
      const auto op_hash = std::hash<c10::OperatorName>()(op_.operator_name());
      graph_recorder().add({op_hash, hash_arguments(op_, values), op_.operator_name().name, describe});
    }
    if (C10_UNLIKELY(is_synchronizing())) {
      record_host_sync(op_.operator_name().name);
    }
  }

  // Replaces the arguments by the results. The one place that decides whether the kernel runs.
  void run() {
    if (C10_UNLIKELY(mode_ == ExecutionMode::kNever) && infer_results(op_, stack_)) {
      return;
    }
    if (has_failed_commit_) {
      pipeline().join();  // There is no memory to run on.
    }
    run_now();
  }

  void alias_outputs_as_hpu() {
    const size_t count = op_.schema().returns().size();
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      replace_tensors(stack_[i], [this](at::Tensor tensor) { return as_hpu_output(std::move(tensor)); });
    }
  }

 private:
  struct AliasedArg {
    at::Tensor hpu;
    at::Tensor cpu;
    bool written;
  };

  void run_now() {
    const ScopedTraceEvent event("kernel", op_.operator_name().name.c_str());
    const bool is_queued = Pipeline::is_on();
    const torch::jit::Stack arguments = is_queued ? arguments_on_stack() : torch::jit::Stack();
    try {
      if (C10_UNLIKELY(has_low_precision_)) {
        redispatch_low_precision(op_, stack_);
      } else {
        op_.redispatchBoxed(kCpuKeys, &stack_);
      }
    } catch (const c10::Error&) {
      sync_written_args();
      if (!is_queued || !fail_late(arguments)) {
        throw;
      }
    } catch (...) {
      sync_written_args();
      throw;
    }
    if (const int64_t bytes_over_limit = sync_written_args()) {
      throw_out_of_memory(bytes_over_limit);
    }
    if (C10_UNLIKELY(is_strict())) {
      for (const auto& arg : aliased_args_) {
        if (arg.written) {
          round_to_stored(arg.cpu);
        }
      }
    }
  }

  torch::jit::Stack arguments_on_stack() const {
    return {stack_.end() - static_cast<std::ptrdiff_t>(op_.schema().arguments().size()), stack_.end()};
  }

  // Keeps the error of a kernel whose arguments pass the checks of the calling thread. Returns false if they do not.
  bool fail_late(const torch::jit::Stack& arguments) {
    torch::jit::Stack results = arguments;
    if (!infer_results(op_, results)) {
      return false;
    }
    pipeline().fail(op_.operator_name().name, std::current_exception());
    stack_.resize(first_);
    stack_.insert(stack_.end(), results.begin(), results.end());
    return true;
  }

  // Commits the memory of an argument, or keeps the error: an empty tensor is a handle until the device uses it.
  void commit_argument(const at::Tensor& tensor) {
    try {
      commit(tensor.storage());
    } catch (const c10::Error&) {
      if (!Pipeline::is_on()) {
        throw;
      }
      pipeline().fail(op_.operator_name().name, std::current_exception());
      mode_ = ExecutionMode::kNever;
      has_failed_commit_ = true;
    }
  }

  // Updates the arguments that the kernel may have resized, also before it threw. Returns the bytes of an argument that
  // has outgrown the memory limit, else 0.
  int64_t sync_written_args() {
    int64_t bytes_over_limit = 0;
    for (const auto& arg : aliased_args_) {
      if (!arg.written) {
        continue;
      }
      if (const int64_t bytes = sync_after_resize(arg.hpu.storage())) {
        bytes_over_limit = bytes;
      } else {
        sync_metadata(arg.hpu, arg.cpu);
      }
    }
    return bytes_over_limit;
  }

  at::Tensor as_cpu_input(const at::Tensor& tensor, const c10::Argument& argument, size_t index) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!is_hpu_tensor(tensor)) {
      if (tensor.dim() > 0 && tensor.device().is_cpu() && !allows_cpu_tensor(argument)) {
        cpu_argument_ = &argument;
        cpu_index_ = index;
      }
      return tensor;
    }
    deferred_copies().run_for(tensor);
    has_low_precision_ |= is_low_precision(tensor.scalar_type());
    has_mask_index_ |= is_mask(tensor) && argument.name() == "indices";
    commit_argument(tensor);
    aliased_args_.push_back({tensor, as_cpu_alias(tensor, /*commits=*/false), is_written(argument)});
    return aliased_args_.back().cpu;
  }

  void alias_input(c10::IValue& value, const c10::Argument& argument, size_t index) {
    if (replace_tensors(value, [&](const at::Tensor& tensor) { return as_cpu_input(tensor, argument, index); })) {
      return;
    }
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::HPU) {
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

  // Indexing and assignment by an index synchronize with a mask only: the number of its true elements is needed.
  bool is_synchronizing() const {
    if (C10_LIKELY(!op_.hasTag(at::Tag::data_dependent_output) && !op_.hasTag(at::Tag::dynamic_output_shape))) {
      return has_mask_index_;
    }
    return has_mask_index_ || !is_advanced_index(op_.operator_name().name);
  }

  void check_devices() const {
    if (C10_LIKELY(cpu_argument_ == nullptr) || aliased_args_.empty()) {
      return;
    }
    TORCH_CHECK(
        !is_strict(),
        "Expected all tensors to be on the HPU device, but found at least one input[idx=",
        cpu_index_,
        "] on cpu");
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu! (when checking "
        "argument for argument ",
        cpu_argument_->name(),
        " in method ",
        op_.operator_name(),
        ")");
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
    if (cpu.scalar_type() == at::kLong && op_.operator_name().name == "aten::_pack_padded_sequence") {
      return cpu;  // The batch sizes stay on the CPU.
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
    if (C10_UNLIKELY(!has_card_strides(cpu, op_.operator_name().name))) {
      if (is_strict()) {
        cpu = cpu.contiguous();
        storage = cpu.storage();
      } else {
        count_lenience(Lenience::kStridedResult);
      }
    }
    round_to_stored(cpu);
    auto hpu_storage = wrap_result(storage, is_stored_in_half(cpu.scalar_type()));
    if (op_.schema().returns().size() > 1) {
      output_storages_.emplace_back(std::move(storage), hpu_storage);
    }
    return as_hpu_tensor(std::move(cpu), std::move(hpu_storage));
  }

  // Returns an hpu storage for a result. If the memory is exhausted, the execution fails, which does not free its
  // handle.
  c10::Storage wrap_result(const c10::Storage& cpu, bool is_halved) {
    if (C10_LIKELY(!Pipeline::is_on())) {
      return wrap_cpu_storage(cpu, is_halved);
    }
    try {
      return wrap_cpu_storage(cpu, is_halved);
    } catch (const c10::Error&) {
      pipeline().fail(op_.operator_name().name, std::current_exception());
      return wrap_cpu_storage_uncounted(cpu);
    }
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t first_ = 0;
  size_t cpu_index_ = 0;
  c10::SmallVector<AliasedArg, 6> aliased_args_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> output_storages_;
  const c10::Argument* cpu_argument_ = nullptr;
  ExecutionMode mode_ = ExecutionMode::kNow;
  bool has_failed_commit_ = false;
  bool has_mask_index_ = false;
  bool has_low_precision_ = false;
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
