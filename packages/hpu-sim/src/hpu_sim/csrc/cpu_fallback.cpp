#include "cpu_fallback.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/SmallVector.h>

#include "alias.h"
#include "allocator.h"
#include "autograd_threads.h"
#include "cpu_placement.h"
#include "dtypes.h"
#include "events.h"
#include "execution.h"
#include "generator.h"
#include "graph.h"
#include "ivalue_tensors.h"
#include "low_precision.h"
#include "planning.h"
#include "recipe_key.h"
#include "stream.h"
#include "strict.h"

namespace hpu_sim {
namespace {

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

bool is_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool returns_tensors(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

// Calls `function` on each pair of tensors in two values of one type.
template <typename Function>
void for_each_pair(const c10::IValue& left, const c10::IValue& right, const Function& function) {
  if (left.isTensor()) {
    function(left.toTensor(), right.toTensor());
  } else if (left.isTensorList()) {
    const auto lefts = left.toTensorVector();
    const auto rights = right.toTensorVector();
    for (size_t i = 0; i < lefts.size(); ++i) {
      function(lefts[i], rights[i]);
    }
  }
}

// Copies what a kernel has returned to what the program got before, unless that is an argument.
void write_result(const c10::OperatorHandle& op, const at::Tensor& target, const at::Tensor& result) {
  if (!target.defined() || target.is_same(result)) {
    return;
  }
  TORCH_INTERNAL_ASSERT(
      target.sizes() == result.sizes() && target.scalar_type() == result.scalar_type(),
      op.operator_name(),
      " returns ",
      describe(result),
      ", and its Meta kernel ",
      describe(target));
  target.copy_(result);
}

// One call of an operator: aliases its inputs as CPU tensors, runs the CPU kernel, aliases the outputs as hpu tensors.
class CpuFallbackCall {
 public:
  CpuFallbackCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    alias_inputs_as_cpu();
    compute();
    alias_outputs_as_hpu();
  }

  // The same for a call that cannot run later.
  void run_on_host() {
    alias_inputs_as_cpu();
    if (mode_ == ExecutionMode::kLater) {
      wait_for_arguments();
      mode_ = ExecutionMode::kNow;
    }
    compute();
    alias_outputs_as_hpu();
  }

 private:
  struct AliasedArg {
    at::Tensor hpu;
    at::Tensor cpu;
    bool written;
  };

  void alias_inputs_as_cpu() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = first_ = stack_.size() - arguments.size();
    join_pipeline();
    mode_ = execution_mode();
    for (size_t i = 0; i < arguments.size(); ++i) {
      alias_input(stack_[first + i], arguments[i]);
    }
    check_devices();
    check_generator();
    graph_recorder().add_call(op_, c10::ArrayRef<c10::IValue>(&stack_[first], arguments.size()));
    if (C10_UNLIKELY(is_synchronizing())) {
      wait_for_arguments();
      record_host_sync(op_.operator_name().name);
    }
  }

  // Replaces the arguments by the results. The one place that decides when the kernel runs.
  void compute() {
    if (C10_UNLIKELY(mode_ == ExecutionMode::kLater)) {
      // A view needs no kernel.
      if (!is_view(op_) && prepare_later()) {
        return;
      }
      wait_for_arguments();
      mode_ = ExecutionMode::kNow;
    }
    run_now();
  }

  void alias_outputs_as_hpu() {
    const size_t count = op_.schema().returns().size();
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      replace_tensors(stack_[i], [this](at::Tensor tensor) { return as_hpu_output(std::move(tensor)); });
    }
    if (later_ != nullptr) {
      enqueue();
    }
  }

  // Blocks until all that the arguments depend on has run.
  void wait_for_arguments() {
    if (execution_mode() == ExecutionMode::kLater && !is_view(op_)) {
      wait_for_memory(memory_of_arguments());
      if (generator_.defined()) {
        wait_on_host(last_draw(generator_));
      }
      wait_on_host(current_stream()->record());
    }
  }

  void run_now() {
    const ScopedTraceEvent event("kernel", op_.operator_name().name.c_str());
    try {
      run_kernel(op_, stack_, has_low_precision_);
    } catch (...) {
      sync_written_args();
      throw;
    }
    if (const int64_t bytes_over_limit = sync_written_args()) {
      throw_out_of_memory(bytes_over_limit);
    }
  }

  static void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack, bool has_low_precision) {
    if (C10_UNLIKELY(has_low_precision)) {
      redispatch_low_precision(op, stack);
    } else {
      op.redispatchBoxed(kCpuKeys, &stack);
    }
  }

  // Replaces the arguments by results that the kernel fills later. Returns false for a call that cannot run later: it
  // needs Python, or its results' metadata depends on data.
  bool prepare_later() {
    const std::string& name = op_.operator_name().name;
    if (has_foreign_memory_ || name.rfind("aten::", 0) != 0 || !returns_tensors(op_) ||
        name == "aten::_pack_padded_sequence") {
      return false;
    }
    torch::jit::Stack arguments(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    if (op_.schema().returns().empty()) {
      stack_.resize(first_);  // As of operators on lists in place.
    } else if (!infer_results(op_, stack_)) {
      return false;
    }
    for (size_t i = first_; i < stack_.size(); ++i) {
      replace_tensors(stack_[i], [this](const at::Tensor& tensor) { return with_card_strides(tensor); });
    }
    torch::jit::Stack results(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    later_ = [op = op_,
              has_low_precision = has_low_precision_,
              thread = is_traced() ? current_thread_id() : 0,
              arguments = std::move(arguments),
              results = std::move(results)]() mutable {
      const ScopedTraceEvent event("kernel", op.operator_name().name.c_str(), 0, thread);
      run_kernel(op, arguments, has_low_precision);
      for (size_t i = 0; i < results.size(); ++i) {
        for_each_pair(results[i], arguments[i], [&op](const at::Tensor& target, const at::Tensor& result) {
          write_result(op, target, result);
        });
      }
    };
    return true;
  }

  void enqueue() {
    auto memory = memory_of_arguments();
    for (size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&memory](const at::Tensor& result) {
        if (is_hpu_tensor(result)) {
          memory.push_back(result.storage());
        }
      });
    }
    if (generator_.defined()) {
      current_stream()->wait_for(last_draw(generator_));
    }
    const auto event = launch_on_memory(op_.operator_name().name.c_str(), memory, std::move(later_));
    if (generator_.defined()) {
      set_last_draw(generator_, event);
    }
  }

  std::vector<c10::Storage> memory_of_arguments() const {
    std::vector<c10::Storage> memory;
    for (const auto& arg : aliased_args_) {
      memory.push_back(arg.hpu.storage());
    }
    return memory;
  }

  // A result of a strict device is contiguous.
  at::Tensor with_card_strides(const at::Tensor& result) const {
    if (!is_strict() || !result.defined() || has_card_strides(result, op_.operator_name().name) ||
        std::any_of(aliased_args_.begin(), aliased_args_.end(), [&](const auto& arg) {
          return arg.cpu.storage().is_alias_of(result.storage());
        })) {
      return result;
    }
    return at::empty(result.sizes(), result.options());
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

  at::Tensor as_cpu_input(const at::Tensor& tensor, const c10::Argument& argument) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!is_hpu_tensor(tensor)) {
      const bool is_number = tensor.dim() == 0 && !is_written(argument);
      if (tensor.device().is_cpu() && !is_number && !allows_cpu_tensor(argument)) {
        cpu_argument_ = &argument;
      }
      return mode_ == ExecutionMode::kLater ? as_snapshot(tensor) : tensor;
    }
    if (C10_UNLIKELY(mode_ == ExecutionMode::kLater)) {
      has_foreign_memory_ |= known_value(tensor.storage()) == nullptr;
    }
    has_low_precision_ |= is_low_precision(tensor.scalar_type());
    has_mask_index_ |= is_mask(tensor) && argument.name() == "indices";
    aliased_args_.push_back({tensor, as_cpu_alias(tensor), is_written(argument)});
    return aliased_args_.back().cpu;
  }

  void alias_input(c10::IValue& value, const c10::Argument& argument) {
    if (replace_tensors(value, [&](const at::Tensor& tensor) { return as_cpu_input(tensor, argument); })) {
      return;
    }
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::HPU) {
      value = c10::Device(c10::DeviceType::CPU);
      has_hpu_device_arg_ = true;
    } else if (value.isGenerator()) {
      value = unwrap_generator(value.toGenerator());
    } else if (value.isNone() && argument.name() == "generator") {
      generator_ = default_generator();
      value = cpu_generator(generator_);
    }
  }

  // The program may change its tensor before the kernel reads it. The device's thread must not release the last
  // reference to a tensor with a Python object, which needs Python's lock.
  static at::Tensor as_snapshot(const at::Tensor& tensor) {
    return is_wrapped_number(tensor) ? copy_wrapped_number(tensor) : tensor.device().is_cpu() ? tensor.clone() : tensor;
  }

  at::Generator unwrap_generator(const at::Generator& generator) {
    const bool is_hpu = generator.device().type() == c10::DeviceType::HPU;
    has_cpu_generator_ = !is_hpu;
    has_hpu_generator_ = is_hpu;
    generator_ = is_hpu ? generator : at::Generator();
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
    return has_mask_index_ || !is_advanced_index(op_);
  }

  void check_devices() const {
    if (C10_LIKELY(cpu_argument_ == nullptr) || aliased_args_.empty()) {
      return;
    }
    throw_two_devices(op_, *cpu_argument_);
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
        count(Tally::kStridedResult);
      }
    }
    auto hpu_storage = wrap_cpu_storage(storage);
    if (op_.schema().returns().size() > 1) {
      output_storages_.emplace_back(std::move(storage), hpu_storage);
    }
    return as_hpu_tensor(std::move(cpu), std::move(hpu_storage));
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t first_ = 0;
  c10::SmallVector<AliasedArg, 6> aliased_args_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> output_storages_;
  std::function<void()> later_;
  at::Generator generator_;
  const c10::Argument* cpu_argument_ = nullptr;
  ExecutionMode mode_ = ExecutionMode::kNow;
  bool has_foreign_memory_ = false;
  bool has_mask_index_ = false;
  bool has_low_precision_ = false;
  bool has_hpu_device_arg_ = false;
  bool has_cpu_generator_ = false;
  bool has_hpu_generator_ = false;
};

}  // namespace

void throw_two_devices(const c10::OperatorHandle& op, const c10::Argument& argument) {
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu! (when checking "
      "argument for argument ",
      argument.name(),
      " in method ",
      op.operator_name(),
      ")");
}

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ensure_acquired();
  sync_intraop_threads();
  const auto end = [&](size_t count) { return stack->end() - static_cast<std::ptrdiff_t>(count); };
  torch::jit::Stack arguments;
  const bool is_heard = is_recorded();
  if (is_heard) {
    arguments.assign(end(op.schema().arguments().size()), stack->end());
  }
  if (!is_planning() || !plan_call(op, *stack)) {
    CpuFallbackCall(op, *stack).run();
    if (is_planning()) {
      note_values(op, *stack);
    }
  }
  if (is_heard) {
    const torch::jit::Stack results(end(op.schema().returns().size()), stack->end());
    notify({"operator", op.operator_name().name, "", 0, &op, std::move(arguments), results});
  }
}

void cpu_fallback_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (is_planning()) {
    cpu_fallback(op, stack);
    return;
  }
  ensure_acquired();
  CpuFallbackCall(op, *stack).run_on_host();
}

void fallback_of_any_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  is_custom_on_cpu(op) ? run_on_cpu(op, stack) : cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, HPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_of_any_operator>());
}

TORCH_LIBRARY_IMPL(_, SparseHPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&throw_sparse_output>());
}

}  // namespace hpu_sim
