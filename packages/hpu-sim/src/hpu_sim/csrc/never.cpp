#include "never.h"

#include <sys/mman.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "alias.h"
#include "allocator.h"
#include "counters.h"
#include "cpu_fallback.h"
#include "dtypes.h"
#include "execution.h"
#include "graph.h"
#include "ivalue_tensors.h"
#include "recipe_key.h"
#include "recorder.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

// Smaller memory is malloc's, which does not touch it either.
constexpr size_t kMappedBytes = size_t{1} << 18;
// Larger tensors that a module makes on the host have no memory, and copies to the host are not filled.
constexpr int64_t kLargeBytes = int64_t{1} << 20;
// Memory whose values an operator computes with: that of one element. Of what the host wrote, more keeps its values:
// libraries send indices and sizes to other ranks and read them again.
constexpr size_t kKnownBytes = 8;
constexpr size_t kKeptBytes = size_t{1} << 16;

struct Mapping {
  void* data;
  size_t bytes;
};

void unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  munmap(mapping->data, mapping->bytes);
}

class ReservingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) HPU_SIM_ALLOCATE_CONST override {
    if (bytes < kMappedBytes) {
      return c10::GetDefaultCPUAllocator()->allocate(bytes);
    }
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(data != MAP_FAILED, "the addresses of this process do not suffice for ", bytes, " more bytes");
    return {data, new Mapping{data, bytes}, &unmap, c10::Device(c10::DeviceType::CPU)};
  }

#if HPU_SIM_TORCH >= 203
  void copy_data(void* /*destination*/, const void* /*source*/, size_t /*bytes*/) const override {}
#endif
};

std::function<bool()>& host_callback() {
  static auto* instance = new std::function<bool()>();
  return *instance;
}

// Set while a large tensor of the device is copied to a new one of the host.
thread_local bool is_copying_to_host = false;

at::Tensor wrap_on_host(c10::Storage storage, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::HPU), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

c10::Storage reserve_storage(size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, reserving_allocator(), /*resizable=*/true);
}

bool is_reserving_on_host(int64_t bytes) {
  return is_never() && bytes >= kLargeBytes && (is_copying_to_host || host_callback()());
}

// `like` has no memory.
at::Tensor reserve_on_host(const at::Tensor& like) {
  return wrap_on_host(reserve_storage(like.unsafeGetTensorImpl()->unsafe_storage().nbytes()), like);
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
  try {
    auto copy = at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
    is_copying_to_host = false;
    return copy;
  } catch (...) {
    is_copying_to_host = false;
    throw;
  }
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

std::string base_name(const c10::OperatorHandle& op) {
  std::string name = name_of(op);
  name.erase(0, name.find("::") + 2);
  name.erase(name.find_last_not_of('_') + 1);
  return name;
}

// Operators whose result has the value that is assumed of their argument, or its negation.
bool keeps_value(const std::string& base) {
  static const std::unordered_set<std::string> names = {"all", "amax", "any", "clone", "max", "min", "squeeze"};
  return names.count(base) != 0;
}

bool negates_value(const std::string& base) {
  return base == "logical_not" || base == "bitwise_not";
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

class LostCall {
 public:
  LostCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()), base_(base_name(op)) {}

  // Returns whether the kernel is to run, because all that it reads is known.
  bool is_computable() const {
    size_t num_known = 0;
    bool is_unknown = op_.hasTag(at::Tag::nondeterministic_seeded);
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(stack_[first_ + i], [&](const at::Tensor& tensor) {
        if (!is_without_data(tensor)) {
          is_unknown |= tensor.dim() > 0;
          return;
        }
        const bool is_overwritten = i == 0 && overwrites(base_) && tensor.storage().nbytes() <= kKnownBytes &&
                                    tensor.numel() != 0 && known_value(tensor.storage()) != nullptr;
        const bool found = is_overwritten || has_values(tensor);
        num_known += found ? 1 : 0;
        // Not what expands one element to many.
        is_unknown |= !found || tensor.storage().nbytes() > kKnownBytes || tensor.nbytes() > kKnownBytes;
      });
    }
    return num_known != 0 && !is_unknown;
  }

  void run() {
    const auto& arguments = op_.schema().arguments();
    torch::jit::Stack values(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    for (size_t i = 0; i < values.size(); ++i) {
      to_meta(values[i], arguments[i]);
    }
    check_devices();
    if (on_device_ && graph_recorder().lazy()) {
      const c10::ArrayRef<c10::IValue> given(&stack_[first_], arguments.size());
      const auto describe = [&] { return describe_arguments(op_, given); };
      const auto op_hash = std::hash<c10::OperatorName>()(op_.operator_name());
      graph_recorder().add({op_hash, hash_arguments(op_, given), name_of(op_), describe});
    }
    const bool is_index = name_of(op_) == "aten::index" || name_of(op_) == "aten::_unsafe_index";
    const bool is_dynamic = op_.hasTag(at::Tag::dynamic_output_shape) && (!is_index || has_mask_index_);
    if (has_mask_index_ || is_dynamic || (op_.hasTag(at::Tag::data_dependent_output) && !is_index)) {
      record_host_sync(name_of(op_));
    }
    if (is_dynamic) {
      refuse("dynamic");
    }
    if (name_of(op_) == "aten::equal") {
      finish({true});
      return;
    }
    const uint64_t key = cache_key();
    torch::jit::Stack results;
    if (!find_cached(key, results)) {
      try {
        op_.callBoxed(&values);
      } catch (const c10::NotImplementedError&) {
        refuse("shapeless");
        throw;
      }
      results = std::move(values);
      keep_cached(key, results);
    }
    for (auto& value : results) {
      replace_tensors(value, [this](const at::Tensor& tensor) { return from_meta(tensor); });
    }
    sync_written();
    finish(std::move(results));
    propagate_assumption();
  }

 private:
  struct Pair {
    at::Tensor given;
    at::Tensor meta;
    bool is_written;
  };

  template <typename Function>
  static void for_each_tensor(const c10::IValue& value, const Function& function) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        function(value.toTensor());
      }
    } else if (value.isTensorList()) {
      for (const at::Tensor tensor : value.toTensorList()) {
        if (tensor.defined()) {
          function(tensor);
        }
      }
    } else if (value.isOptionalTensorList()) {
      for (const Optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        if (tensor.has_value() && tensor->defined()) {
          function(*tensor);
        }
      }
    }
  }

  // Results of an earlier call with arguments of the same sizes, dtypes and numbers: argument, or what is new. Most
  // Meta kernels are in Python, and a training step calls each with the same arguments again.
  using Cached = std::vector<std::pair<int, c10::IValue>>;

  static std::unordered_map<uint64_t, Cached>& cache() {
    static auto* instance = new std::unordered_map<uint64_t, Cached>();
    return *instance;
  }

  static std::mutex& cache_mutex() {
    static auto* instance = new std::mutex();
    return *instance;
  }

  uint64_t cache_key() const {
    const auto& arguments = op_.schema().arguments();
    const c10::ArrayRef<c10::IValue> given(&stack_[first_], arguments.size());
    uint64_t key = hash_combine(std::hash<c10::OperatorName>()(op_.operator_name()), hash_arguments(op_, given));
    key = hash_combine(key, pairs_.size() * 2 + (on_device_ ? 1 : 0));
    for (const auto& value : given) {
      // Numbers that are data of a graph have a dtype.
      key = hash_combine(key, value.isInt() ? 1 : value.isDouble() ? 2 : value.isBool() ? 3 : 4);
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        const bool is_wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
        key = hash_combine(key, static_cast<uint64_t>(tensor.dim()) * 2 + (is_wrapped ? 1 : 0));
      });
    }
    return key;
  }

  bool find_cached(uint64_t key, torch::jit::Stack& results) const {
    const std::lock_guard<std::mutex> lock(cache_mutex());
    const auto found = cache().find(key);
    if (found == cache().end()) {
      return false;
    }
    for (const auto& [argument, value] : found->second) {
      results.push_back(argument < 0 ? value : c10::IValue(pairs_[static_cast<size_t>(argument)].meta));
    }
    return true;
  }

  void keep_cached(uint64_t key, const torch::jit::Stack& results) const {
    for (const auto& pair : pairs_) {
      if (pair.is_written && (pair.meta.sizes() != pair.given.sizes() || pair.meta.strides() != pair.given.strides())) {
        return;  // Resized.
      }
    }
    Cached kept;
    for (const auto& value : results) {
      int argument = -1;
      if (value.isTensor() && value.toTensor().defined()) {
        for (size_t i = 0; i < pairs_.size(); ++i) {
          if (pairs_[i].meta.is_same(value.toTensor())) {
            argument = static_cast<int>(i);
          } else if (pairs_[i].meta.storage().is_alias_of(value.toTensor().storage())) {
            return;  // A view.
          }
        }
      } else if (!value.isNone() && !value.isTensor() && !value.isScalar()) {
        return;
      }
      kept.emplace_back(argument, argument < 0 ? value : c10::IValue());
    }
    const std::lock_guard<std::mutex> lock(cache_mutex());
    cache().emplace(key, std::move(kept));
  }

  void finish(torch::jit::Stack results) {
    if (base_ == "equal" || keeps_value(base_) || negates_value(base_)) {
      for_each_tensor(stack_[first_], [this](const at::Tensor& tensor) {
        const auto* value = known_value(tensor.storage());
        assumed_ = value == nullptr ? -1 : value->assumed;
      });
    }
    stack_.resize(first_);
    for (auto& result : results) {
      stack_.push_back(std::move(result));
    }
  }

  void propagate_assumption() {
    if (assumed_ >= 0 && op_.schema().returns().size() == 1 && stack_.back().isTensor()) {
      assume(stack_.back().toTensor(), negates_value(base_) ? assumed_ == 0 : assumed_ != 0);
    }
  }

  // The recorder raises an error that names the line. Without one, the operator's own error follows.
  void refuse(const char* why) const {
    record_event(why, op_, {}, {});
    TORCH_CHECK_NOT_IMPLEMENTED(false, op_.operator_name(), " cannot be planned: ", why);
  }

  void to_meta(c10::IValue& value, const c10::Argument& argument) {
    if (replace_tensors(value, [&](const at::Tensor& tensor) { return meta_of(tensor, argument); })) {
      return;
    }
    if (value.isDevice()) {
      on_device_ |= value.toDevice().type() == c10::DeviceType::HPU;
      value = c10::Device(c10::DeviceType::Meta);
    } else if (value.isGenerator()) {
      value = c10::IValue();
    } else if (value.isBool() && argument.name() == "pin_memory") {
      value = false;
    }
  }

  at::Tensor meta_of(const at::Tensor& tensor, const c10::Argument& argument) {
    if (!tensor.defined() || tensor.is_meta()) {
      return tensor;
    }
    if (is_hpu_tensor(tensor)) {
      on_device_ = true;
      commit(tensor.storage());
      has_mask_index_ |=
          argument.name() == "indices" && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    } else if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return tensor;
    } else if (tensor.dim() > 0 && argument.name() != "indices" && argument.name() != "lengths") {
      host_argument_ = &argument;
    }
    for (const auto& pair : pairs_) {
      if (pair.given.is_same(tensor)) {
        return pair.meta;
      }
    }
    auto meta =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta).pinned_memory(kNone));
    pairs_.push_back({tensor, meta, is_written(argument)});
    return meta;
  }

  void check_devices() const {
    TORCH_CHECK(
        host_argument_ == nullptr || !on_device_,
        "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu! (when checking "
        "argument for argument ",
        host_argument_ == nullptr ? "" : host_argument_->name(),
        " in method ",
        op_.operator_name(),
        ")");
  }

  at::Tensor from_meta(const at::Tensor& meta) {
    if (!meta.defined() || !meta.is_meta()) {
      return meta;
    }
    for (const auto& pair : pairs_) {
      if (pair.meta.is_same(meta)) {
        return pair.given;
      }
    }
    for (const auto& pair : pairs_) {
      if (pair.meta.storage().is_alias_of(meta.storage())) {
        return tensor_over(pair.given.storage(), meta, pair.given.storage_offset());
      }
    }
    for (const auto& [known, storage] : new_storages_) {
      if (known.is_alias_of(meta.storage())) {
        return tensor_over(storage, meta, 0);
      }
    }
    const size_t bytes = meta.storage().nbytes();
    c10::Storage storage;
    if (on_device_) {
      check_dtype_on_device(meta.scalar_type(), name_of(op_));
      storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, device_allocator(), /*resizable=*/true);
      if (is_stored_in_half(meta.scalar_type())) {
        store_in_half(storage);
      }
      commit(storage);
      if (meta.scalar_type() == at::kBool) {
        // As `read_element`: a program may look at flags in another dtype.
        known_value(storage)->assumed = 0;
      }
    } else {
      storage = reserve_storage(bytes);
    }
    new_storages_.emplace_back(meta.storage(), storage);
    return tensor_over(std::move(storage), meta, 0);
  }

  static at::Tensor tensor_over(c10::Storage storage, const at::Tensor& meta, int64_t offset) {
    auto tensor = wrap_on_host(std::move(storage), meta);  // Its device is that of the storage.
    if (offset != 0) {
      tensor.unsafeGetTensorImpl()->set_storage_offset(offset + meta.storage_offset());
    }
    return tensor;
  }

  void sync_written() const {
    for (const auto& pair : pairs_) {
      if (!pair.is_written) {
        continue;
      }
      const at::Tensor& given = pair.given;
      if (is_without_data(given) && (given.sizes() != pair.meta.sizes() || given.strides() != pair.meta.strides())) {
        const auto needed = at::detail::computeStorageNbytes(
            pair.meta.sizes(), pair.meta.strides(), given.element_size(), given.storage_offset());
        if (is_hpu_tensor(given)) {
          grow_storage(given.storage(), needed);
          commit(given.storage());
        }
        given.unsafeGetTensorImpl()->set_sizes_and_strides(
            pair.meta.sizes(), pair.meta.strides(), given.storage_offset());
      }
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
  std::vector<Pair> pairs_;
  std::vector<std::pair<c10::Storage, c10::Storage>> new_storages_;
  const c10::Argument* host_argument_ = nullptr;
  bool on_device_ = false;
  bool has_mask_index_ = false;
  int assumed_ = -1;
};

void fill_with(const at::Tensor& target, const at::Scalar& value) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  target.fill_(value);
}

}  // namespace

c10::Allocator* reserving_allocator() {
  static auto* instance = new ReservingAllocator();
  return instance;
}

void set_never(bool enabled, std::function<bool()> is_reserved_on_host) {
  // Not destroyed at exit, when torch's dispatcher may be gone.
  static auto& kernels = *new std::unique_ptr<Kernels>();
  static ExecutionMode mode_before = ExecutionMode::kNow;
  host_callback() = std::move(is_reserved_on_host);
  if (enabled != is_never()) {
    // What is computed at all is computed now.
    mode_before = enabled ? execution_mode() : mode_before;
    set_execution_mode(enabled ? ExecutionMode::kNow : mode_before);
  }
  never_enabled = enabled;
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

bool lose_forever(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  LostCall call(op, stack);
  if (call.is_computable()) {
    return false;
  }
  call.run();
  return true;
}

void know_results(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor() && is_hpu_tensor(stack[i].toTensor())) {
      const auto storage = stack[i].toTensor().storage();
      if (auto* value = known_value(storage)) {
        value->is_known = storage.nbytes() <= kKnownBytes;
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
    if (is_hpu_tensor(target)) {
      commit(target.storage());
    }
    if (is_small && has_values(source)) {
      at::Tensor cpu = as_cpu_alias(target);
      cpu.copy_(is_without_data(source) ? as_cpu_alias(source) : source);
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
    const auto* given = known_value(source.storage());
    const int assumed = given == nullptr ? -1 : given->assumed;
    fill_with(target, assumed >= 0 ? at::Scalar(assumed) : at::Scalar(target.scalar_type() == at::kBool ? 0 : 1));
  }
  return target;
}

at::Scalar read_element(const at::Tensor& tensor) {
  const auto* value = known_value(tensor.storage());
  if (value != nullptr && value->is_known) {
    return at::_local_scalar_dense(as_cpu_alias(tensor));
  }
  const bool is_bool = tensor.scalar_type() == at::kBool;
  if (value != nullptr && value->assumed >= 0) {
    return is_bool ? at::Scalar(value->assumed != 0) : at::Scalar(static_cast<int64_t>(value->assumed));
  }
  if (is_bool) {
    return at::Scalar(false);
  }
  return c10::isFloatingType(tensor.scalar_type()) ? at::Scalar(1.0) : at::Scalar(int64_t{1});
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
