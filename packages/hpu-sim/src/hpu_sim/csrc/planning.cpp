#include "planning.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_native.h>

#include "alias.h"
#include "allocator.h"
#include "cpu_fallback.h"
#include "cpu_placement.h"
#include "dtypes.h"
#include "events.h"
#include "execution.h"
#include "graph.h"
#include "host_allocators.h"
#include "ivalue_tensors.h"

namespace hpu_sim {
namespace {

// Larger tensors that a module makes on the host have no memory, and copies to the host are not filled.
constexpr int64_t kLargeBytes = int64_t{1} << 20;
// Memory whose values an operator computes with: that of one number, or that of indices, lengths and masks, which the
// host wrote and by which a program chooses what it runs. Of what the host wrote, this much keeps its values.
constexpr size_t kKnownBytes = 8;
constexpr size_t kKeptBytes = size_t{1} << 16;

std::function<bool()>& host_callback = *new std::function<bool()>();

// Set while a large tensor of the device is copied to a new one of the host.
thread_local bool is_copying_to_host = false;

c10::Storage reserve_storage(size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, reserving_allocator(), /*resizable=*/true);
}

bool is_reserving_on_host(int64_t bytes) {
  return is_planning() && bytes >= kLargeBytes && (is_copying_to_host || host_callback());
}

// `like` has no memory.
at::Tensor reserve_on_host(const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      reserve_storage(like.unsafeGetTensorImpl()->unsafe_storage().nbytes()),
      c10::DispatchKeySet(c10::DispatchKey::HPU),
      like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

at::Tensor host_empty(
    c10::IntArrayRef size,
    Optional<at::ScalarType> dtype,
    Optional<c10::Layout> layout,
    Optional<c10::Device> device,
    Optional<bool> pin_memory,
    Optional<at::MemoryFormat> memory_format) {
  const auto type = dtype.value_or(at::get_default_dtype_as_scalartype());
  const auto bytes = c10::multiply_integers(size) * static_cast<int64_t>(c10::elementSize(type));
  if (!pin_memory.value_or(false) && is_reserving_on_host(bytes)) {
    return reserve_on_host(at::detail::empty_meta(size, type, layout, kNone, kNone, memory_format));
  }
  return at::detail::empty_cpu(size, dtype, layout, device, pin_memory, memory_format);
}

at::Tensor host_empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    Optional<at::ScalarType> dtype,
    Optional<c10::Layout> layout,
    Optional<c10::Device> device,
    Optional<bool> pin_memory) {
  const auto type = dtype.value_or(at::get_default_dtype_as_scalartype());
  const auto bytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(type));
  if (!pin_memory.value_or(false) && is_reserving_on_host(static_cast<int64_t>(bytes))) {
    return reserve_on_host(at::detail::empty_strided_meta(size, stride, type, layout, kNone, kNone));
  }
  return at::detail::empty_strided_cpu(size, stride, dtype, layout, device, pin_memory);
}

at::Tensor to_copy(
    const at::Tensor& self,
    Optional<at::ScalarType> dtype,
    Optional<c10::Layout> layout,
    Optional<c10::Device> device,
    Optional<bool> pin_memory,
    bool non_blocking,
    Optional<at::MemoryFormat> memory_format) {
  is_copying_to_host = device.has_value() ? device->is_cpu() : self.device().is_cpu();
  const auto end = c10::make_scope_exit([] { is_copying_to_host = false; });
  return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
}

// The kernels that stay while the mode is on. Torch warns of a kernel in place of another one.
class Kernels {
 public:
  Kernels()
      : host_(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__),
        device_(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__) {
    const c10::WarningUtils::WarningHandlerGuard guard(&silent_);
    host_.impl("empty.memory_format", &host_empty);
    host_.impl("empty_strided", &host_empty_strided);
    device_.impl("_to_copy", &to_copy);
  }

 private:
  class Silent final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& /*warning*/) override {}
  };

  Silent silent_;
  torch::Library host_;
  torch::Library device_;
};

bool is_without_data(const at::Tensor& tensor) {
  return is_hpu_tensor(tensor) || is_reserved_on_host(tensor);
}

const std::string& name_of(const c10::OperatorHandle& op) {
  return op.operator_name().name;
}

// Operators whose result has the value that is assumed of their argument, or its negation.
bool keeps_value(const std::string& base) {
  static const std::unordered_set<std::string> names = {"all", "amax", "any", "clone", "max", "min", "squeeze"};
  return names.count(base) != 0;
}

bool negates_value(const std::string& base) {
  return base == "logical_not" || base == "bitwise_not";
}

// Operators whose result is that of numbers that are not known, and count as 1 (see `read_element`): a program checks
// its values.
bool compares(const std::string& base) {
  return base == "lt" || base == "le" || base == "gt" || base == "ge";
}

// Operators that overwrite their first argument, without reading it.
bool overwrites(const std::string& base) {
  return base == "fill" || base == "zero";
}

void forget(const at::Tensor& tensor) {
  if (auto* value = known_value(tensor.storage())) {
    value->is_known = false;
    value->assumed = -1;
  }
}

size_t max_known_bytes(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ? kKeptBytes : kKnownBytes;
}

class PlannedCall {
 public:
  PlannedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        stack_(stack),
        first_(stack.size() - op.schema().arguments().size()),
        base_(base_name(op.operator_name())) {}

  // Returns whether the kernel is to run, because all that it reads is known.
  bool is_computable() const {
    size_t num_known = 0;
    bool is_unknown = op_.hasTag(at::Tag::nondeterministic_seeded);
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(stack_[first_ + i], [&](const at::Tensor& tensor) {
        if (!tensor.defined()) {
          return;
        }
        if (!is_without_data(tensor)) {
          is_unknown |= tensor.dim() > 0;
          return;
        }
        const bool is_whole = tensor.numel() != 0 && tensor.nbytes() == tensor.storage().nbytes() &&
                              known_value(tensor.storage()) != nullptr;
        const bool is_overwritten = base_ == "arange" || (i == 0 && overwrites(base_) && is_whole);
        const bool found = is_overwritten || has_values(tensor);
        num_known += found ? 1 : 0;
        // Not what expands one element to many.
        is_unknown |= !found || std::max(tensor.storage().nbytes(), tensor.nbytes()) > max_known_bytes(tensor);
      });
    }
    return num_known != 0 && !is_unknown;
  }

  void run() {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      look_at(stack_[first_ + i], arguments[i]);
    }
    if (host_argument_ != nullptr && on_device_) {
      throw_two_devices(op_, *host_argument_);
    }
    if (on_device_) {
      graph_recorder().add_call(op_, c10::ArrayRef<c10::IValue>(&stack_[first_], arguments.size()));
    }
    const bool is_index = is_advanced_index(op_);
    // The lengths of CTC's targets are numbers of the host.
    const bool is_dynamic = op_.hasTag(at::Tag::dynamic_output_shape) && (!is_index || has_mask_index_) &&
                            name_of(op_) != "aten::_ctc_loss";
    const bool is_equal = name_of(op_) == "aten::equal";
    if (has_mask_index_ || is_dynamic || (op_.hasTag(at::Tag::data_dependent_output) && !is_index)) {
      record_host_sync(name_of(op_), "host_sync", is_equal ? torch::jit::Stack{true} : torch::jit::Stack{});
    }
    if (is_equal) {
      finish({true});
      return;
    }
    if (is_dynamic) {
      auto selected = select_all();
      if (selected.defined()) {
        finish({std::move(selected)});
        return;
      }
    }
    try {
      const torch::jit::Stack values(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
      inferred_ = infer(op_, values, given_);
    } catch (const c10::NotImplementedError&) {
      if (name_of(op_) == "aten::_ctc_loss_backward") {
        finish({at::empty_like(stack_[first_ + 1].toTensor())});
        return;
      }
      refuse("shapeless");
      throw;
    }
    // The device of a result is that of its storage.
    auto results = inferred_->with_memory(
        given_, c10::DispatchKey::HPU, [this](const at::Tensor& meta) { return make_storage(meta); });
    sync_written();
    const int64_t num_counted = base_ == "histc" ? stack_[first_].toTensor().numel() : 0;
    finish(results);
    propagate_assumption();
    if (num_counted != 0) {
      balance(num_counted);
    }
  }

 private:
  void finish(const torch::jit::Stack& results) {
    if (base_ == "equal" || keeps_value(base_) || negates_value(base_)) {
      for_each_tensor(stack_[first_], [this](const at::Tensor& tensor) {
        const auto* value = tensor.defined() ? known_value(tensor.storage()) : nullptr;
        assumed_ = value == nullptr ? -1 : value->assumed;
      });
    } else if (compares(base_)) {
      const double number = number_of(stack_[first_]);
      const double other = number_of(stack_[first_ + 1]);
      const bool is_less = base_[0] == 'l';
      assumed_ = (is_less ? number < other : number > other) || (base_[1] == 'e' && number == other) ? 1 : 0;
    }
    stack_.resize(first_);
    stack_.insert(stack_.end(), results.begin(), results.end());
  }

  // Fills counts of values that are not known, such as tokens of each expert: as many of each.
  void balance(int64_t total) const {
    const at::Tensor& counts = stack_.back().toTensor();
    auto* value = known_value(counts.storage());
    if (value == nullptr || counts.storage().nbytes() > kKeptBytes) {
      return;
    }
    std::vector<int64_t> balanced(static_cast<size_t>(counts.numel()));
    for (int64_t i = 0, before = 0; i < counts.numel(); ++i) {
      const int64_t end = total * (i + 1) / counts.numel();
      balanced[static_cast<size_t>(i)] = end - before;
      before = end;
    }
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    as_cpu_alias(counts).copy_(at::tensor(balanced, at::kLong));
    value->is_known = true;
    note("as balanced, such as the tokens of each expert");
  }

  // Tells how the plan takes a result that depends on values.
  void note(const char* how) const {
    if (is_recorded()) {
      notify({"assumed", name_of(op_), how, 0, &op_});
    }
  }

  static double number_of(const c10::IValue& value) {
    if (value.isScalar()) {
      return value.toScalar().toDouble();
    }
    const auto& tensor = value.toTensor();
    return tensor.numel() == 1 ? (is_without_data(tensor) ? read_element(tensor) : tensor.item()).toDouble() : 1.0;
  }

  void propagate_assumption() {
    if (assumed_ >= 0 && op_.schema().returns().size() == 1 && stack_.back().isTensor()) {
      assume(stack_.back().toTensor(), negates_value(base_) ? assumed_ == 0 : assumed_ != 0);
    }
  }

  // Returns the result of an operator that selects elements by their values, as if it selected all. Of masks that index
  // a tensor, makes the indices of all elements, and returns no tensor.
  at::Tensor select_all() {
    const auto& name = name_of(op_);
    at::Tensor selected;
    if (name == "aten::nonzero" || name == "aten::masked_select") {
      const auto& self = stack_[first_].toTensor();
      if (name == "aten::nonzero") {
        selected = at::empty_strided({self.numel(), self.dim()}, {1, self.numel()}, self.options().dtype(at::kLong));
      } else {
        const auto size = at::infer_size(self.sizes(), stack_[first_ + 1].toTensor().sizes());
        selected = at::empty({c10::multiply_integers(size)}, self.options());
      }
    } else if (has_mask_index_) {
      c10::List<Optional<at::Tensor>> indices;
      for (const c10::IValue& index : stack_[first_ + 1].toListRef()) {
        const auto mask = index.isTensor() ? index.toTensor() : at::Tensor();
        if (is_hpu_tensor(mask) && is_mask(mask)) {
          for (int64_t i = 0; i < mask.dim(); ++i) {
            indices.push_back(at::empty({mask.numel()}, mask.options().dtype(at::kLong)));
          }
        } else {
          indices.push_back(mask.defined() ? Optional<at::Tensor>(mask) : kNone);
        }
      }
      stack_[first_ + 1] = std::move(indices);
    } else {
      refuse("dynamic");
    }
    note(
        "as if each element were selected, an upper limit of memory and time (on a card a host sync, and a new graph "
        "for "
        "each shape)");
    return selected;
  }

  // A plan raises an error that names the line. Without one, the operator's own error follows.
  void refuse(const char* why) const {
    if (is_recorded()) {
      notify({why, name_of(op_), "", 0, &op_});
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, op_.operator_name(), " cannot be planned: ", why);
  }

  void look_at(const c10::IValue& value, const c10::Argument& argument) {
    on_device_ |= value.isDevice() && value.toDevice().type() == c10::DeviceType::HPU;
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.is_meta()) {
        return;
      }
      if (is_hpu_tensor(tensor)) {
        on_device_ = true;
        has_mask_index_ |= argument.name() == "indices" && is_mask(tensor);
      } else if (tensor.dim() > 0 && !allows_cpu_tensor(argument)) {
        host_argument_ = &argument;
      }
      if (is_written(argument)) {
        written_.push_back(tensor);
      }
    });
  }

  c10::Storage make_storage(const at::Tensor& meta) const {
    const size_t bytes = meta.storage().nbytes();
    if (!on_device_) {
      return reserve_storage(bytes);
    }
    check_dtype_on_device(meta.scalar_type(), name_of(op_));
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, device_allocator(), /*resizable=*/true);
    if (meta.scalar_type() == at::kBool) {
      // As `read_element`: a program may look at flags in another dtype.
      known_value(storage)->assumed = 0;
    }
    return storage;
  }

  void sync_written() const {
    for (size_t i = 0; i < given_.size(); ++i) {
      const auto& meta = inferred_->metas[i];
      const at::Tensor& given = given_[i];
      if (is_without_data(given) && (given.sizes() != meta.sizes() || given.strides() != meta.strides())) {
        const auto needed = at::detail::computeStorageNbytes(
            meta.sizes(), meta.strides(), given.element_size(), given.storage_offset());
        if (is_hpu_tensor(given)) {
          grow_storage(given.storage(), needed);
        }
        given.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(), given.storage_offset());
      }
    }
    for (const auto& given : written_) {
      // No gradient is infinite, so that a scaler of the loss steps its optimizer.
      if (base_ != "_amp_foreach_non_finite_check_and_unscale") {
        forget(given);
      }
    }
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t first_;
  std::string base_;
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> written_;
  std::shared_ptr<const InferredCall> inferred_;
  const c10::Argument* host_argument_ = nullptr;
  bool on_device_ = false;
  bool has_mask_index_ = false;
  int assumed_ = -1;
};

// Returns an element that is not known: False, 1 or 1.0 where nothing is assumed.
at::Scalar made_up(const KnownValue* value, c10::ScalarType dtype) {
  const bool is_assumed = value != nullptr && value->assumed >= 0;
  if (dtype == at::kBool) {
    return at::Scalar(is_assumed && value->assumed != 0);
  }
  if (is_assumed) {
    return at::Scalar(static_cast<int64_t>(value->assumed));
  }
  return c10::isFloatingType(dtype) ? at::Scalar(1.0) : at::Scalar(int64_t{1});
}

}  // namespace

void set_planning(bool enabled, std::function<bool()> is_reserved_on_host) {
  // Not destroyed at exit, when torch's dispatcher may be gone.
  static auto& kernels = *new std::unique_ptr<Kernels>();
  static ExecutionMode mode_before = ExecutionMode::kNow;
  host_callback = std::move(is_reserved_on_host);
  if (enabled != is_planning()) {
    // What is computed at all is computed now.
    mode_before = enabled ? execution_mode() : mode_before;
    current_execution_mode = enabled ? ExecutionMode::kNow : mode_before;
  }
  planning_enabled = enabled;
  if (enabled && kernels == nullptr) {
    kernels = std::make_unique<Kernels>();
  } else if (!enabled) {
    kernels.reset();
  }
}

bool is_reserved_on_host(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.key_set().has(c10::DispatchKey::HPU);
}

bool has_values(const at::Tensor& tensor) {
  if (!is_without_data(tensor)) {
    return true;
  }
  const auto* value = known_value(tensor.storage());
  return value != nullptr && value->is_known && tensor.numel() != 0;
}

bool plan_call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  PlannedCall call(op, stack);
  if (call.is_computable()) {
    return false;
  }
  call.run();
  return true;
}

void note_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor() && is_hpu_tensor(stack[i].toTensor())) {
      const at::Tensor& result = stack[i].toTensor();
      if (auto* value = known_value(result.storage())) {
        value->is_known = result.storage().nbytes() <= max_known_bytes(result);
      }
    }
  }
}

at::Tensor& copy_without_data(at::Tensor& target, const at::Tensor& source) {
  static_cast<void>(source.expand(target.sizes()));  // Raises the error for other sizes.
  if (is_without_data(target)) {
    auto* value = known_value(target.storage());
    const auto* given = is_without_data(source) ? known_value(source.storage()) : nullptr;
    const bool is_small = value != nullptr && target.storage().nbytes() <= kKeptBytes && target.numel() != 0 &&
                          (value->is_known || target.nbytes() == target.storage().nbytes());
    if (is_small && has_values(source)) {
      at::Tensor cpu = as_cpu_alias(target);
      cpu.copy_(as_cpu(source));
      value->is_known = true;
    } else if (value != nullptr) {
      value->is_known = false;
      const int8_t unknown = target.scalar_type() == at::kBool ? 0 : -1;  // as `read_element`
      value->assumed = given == nullptr || given->assumed < 0 ? unknown : given->assumed;
    }
    return target;
  }
  if (is_hpu_tensor(source) && has_values(source)) {
    target.copy_(as_cpu_alias(source));
  } else if (static_cast<int64_t>(target.nbytes()) < kLargeBytes) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    target.fill_(made_up(known_value(source.storage()), target.scalar_type()));
  }
  return target;
}

at::Scalar read_element(const at::Tensor& tensor) {
  const auto* value = known_value(tensor.storage());
  if (value != nullptr && value->is_known) {
    return at::_local_scalar_dense(as_cpu_alias(tensor));
  }
  return made_up(value, tensor.scalar_type());
}

void assume(const at::Tensor& tensor, bool value) {
  if (!tensor.defined()) {
    return;
  }
  if (auto* known = known_value(tensor.storage())) {
    known->is_known = false;
    known->assumed = value ? 1 : 0;
  }
}

}  // namespace hpu_sim
