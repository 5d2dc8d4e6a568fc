#include "low_precision.h"

#include "cpu_fallback.h"
#include "cpu_placement.h"
#include "dtypes.h"
#include "ivalue_tensors.h"
#include "recipe_key.h"

namespace hpu_sim {
namespace {

// Returns the dtype of low precision that the kernel lacks, or "". All dispatch macros of torch raise this text.
std::string missing_dtype(const c10::Error& error) {
  static const std::string kText = "not implemented for '";
  const std::string message = error.what_without_backtrace();
  const auto position = message.find(kText);
  if (position == std::string::npos) {
    return "";
  }
  const auto begin = position + kText.size();
  const auto dtype = message.substr(begin, message.find('\'', begin) - begin);
  const bool is_low = dtype == "Half" || dtype == "BFloat16" || dtype.rfind("Float8", 0) == 0;
  return is_low ? dtype : "";
}

// Runs the CPU kernel. A kernel that lacks a dtype may have changed written arguments and the state of the generator
// before it throws, so the first call with these dtypes is tried on copies.
void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack, torch::jit::Stack trial) {
  thread_local std::unordered_set<uint64_t> known;
  const auto& schema = op.schema().arguments();
  uint64_t key = std::hash<c10::OperatorName>()(op.operator_name());
  bool has_effects = false;
  for (size_t i = 0; i < schema.size(); ++i) {
    has_effects |= is_written(schema[i]) || trial[i].isGenerator();
    for_each_tensor(trial[i], [&key](const at::Tensor& tensor) {
      key = hash_combine(key, tensor.defined() ? static_cast<uint64_t>(tensor.scalar_type()) : ~uint64_t{0});
    });
  }
  if (has_effects && known.count(key) == 0) {
    for (size_t i = 0; i < schema.size(); ++i) {
      if (is_written(schema[i])) {
        replace_tensors(trial[i], [](const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; });
      } else if (trial[i].isGenerator()) {
        auto generator = trial[i].toGenerator();
        const std::lock_guard<std::mutex> lock(generator.mutex());
        trial[i] = generator.clone();
      }
    }
    op.redispatchBoxed(kCpuKeys, &trial);
    known.insert(key);
  }
  op.redispatchBoxed(kCpuKeys, &stack);
}

// One call of an operator on float32 copies of its low-precision arguments.
class Float32Call {
 public:
  Float32Call(const c10::OperatorHandle& op, torch::jit::Stack arguments) : op_(op), stack_(std::move(arguments)) {}

  // Returns the results.
  torch::jit::Stack run() {
    const auto& schema = op_.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      cast_input(stack_[i], schema[i]);
    }
    op_.redispatchBoxed(kCpuKeys, &stack_);
    for (const auto& copy : copies_) {
      if (copy.written) {
        copy.narrow.resize_(copy.wide.sizes());
        copy.narrow.copy_(copy.wide);
      }
    }
    for (auto& value : stack_) {
      replace_tensors(value, [this](const at::Tensor& tensor) { return cast_output(tensor); });
    }
    return std::move(stack_);
  }

 private:
  struct Copy {
    at::Tensor narrow;
    at::Tensor wide;
    bool written;
  };

  at::Tensor cast_input(const at::Tensor& tensor, const c10::Argument& argument) {
    if (!tensor.defined() || !c10::isFloatingType(tensor.scalar_type())) {
      return tensor;
    }
    if (!argument.is_out() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      has_other_dtype_ |= input_dtype_.has_value() && *input_dtype_ != tensor.scalar_type();
      input_dtype_ = tensor.scalar_type();
    }
    if (!is_low_precision(tensor.scalar_type())) {
      return tensor;
    }
    copies_.push_back({tensor, tensor.to(at::kFloat), is_written(argument)});
    return copies_.back().wide;
  }

  void cast_input(c10::IValue& value, const c10::Argument& argument) {
    if (replace_tensors(value, [&](const at::Tensor& tensor) { return cast_input(tensor, argument); })) {
      return;
    }
    if (value.isInt() && (argument.name() == "dtype" || argument.name() == "input_dtype")) {
      // "input_dtype" is that of the gradient of a softmax.
      result_dtype_ = static_cast<c10::ScalarType>(value.toInt());
      if (is_low_precision(*result_dtype_)) {
        value = static_cast<int64_t>(at::kFloat);
      }
    }
  }

  // Results are rounded to the dtype that is asked for, or to the common dtype of the inputs.
  at::Tensor cast_output(const at::Tensor& tensor) const {
    for (const auto& copy : copies_) {
      if (copy.wide.is_same(tensor)) {
        return copy.narrow;
      }
    }
    const auto dtype = result_dtype_.has_value() ? result_dtype_ : has_other_dtype_ ? kNoDtype : input_dtype_;
    const bool is_rounded = tensor.defined() && tensor.scalar_type() == at::kFloat && dtype.has_value();
    return is_rounded && is_low_precision(*dtype) ? tensor.to(*dtype) : tensor;
  }

  static constexpr std::optional<c10::ScalarType> kNoDtype = std::nullopt;

  const c10::OperatorHandle& op_;
  torch::jit::Stack stack_;
  std::vector<Copy> copies_;
  std::optional<c10::ScalarType> input_dtype_;
  std::optional<c10::ScalarType> result_dtype_;
  bool has_other_dtype_ = false;
};

}  // namespace

bool is_low_precision(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf || is_float8(dtype);
}

void redispatch_low_precision(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const torch::jit::Stack arguments(first, stack.end());
  const size_t size_below = stack.size() - arguments.size();
  std::exception_ptr error;
  try {
    run_cpu_kernel(op, stack, arguments);
    return;
  } catch (const c10::Error& caught) {
    const std::string dtype = missing_dtype(caught);
    // A card runs an operator without a kernel for the dtype on the CPU, which lacks it as well.
    if (dtype.empty() || !has_device_kernel(op, dtype)) {
      throw;
    }
    error = std::current_exception();
  }
  torch::jit::Stack results;
  try {
    results = Float32Call(op, arguments).run();
  } catch (const c10::Error& caught) {
    // Neither is there a kernel for float32: the first error names the dtype of the program.
    if (std::string(caught.what_without_backtrace()).find("not implemented for 'Float'") != std::string::npos) {
      std::rethrow_exception(error);
    }
    throw;
  }
  stack.resize(size_below);
  stack.insert(stack.end(), results.begin(), results.end());
}

}  // namespace hpu_sim
