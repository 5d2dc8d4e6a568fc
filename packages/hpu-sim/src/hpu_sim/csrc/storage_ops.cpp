// Factories, resize_, set_ and pinning.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/accumulate.h>

#include "alias.h"
#include "allocator.h"
#include "common.h"
#include "dtypes.h"
#include "graph.h"
#include "guard.h"
#include "host_allocators.h"
#include "strict.h"

namespace hpu_sim {
namespace {

constexpr c10::DispatchKeySet kHpuKeys(c10::DispatchKey::HPU);

void check_factory(Optional<c10::Device> device, Optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  check_device_index(device.value_or(kDevice).index());
}

// torch.use_deterministic_algorithms makes torch fill new memory.
at::Tensor finish_factory(at::Tensor tensor) {
#if HPU_SIM_TORCH >= 202
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
#endif
  return tensor;
}

at::Tensor empty(
    c10::IntArrayRef size,
    Optional<at::ScalarType> dtype,
    Optional<c10::Layout> /*layout*/,
    Optional<c10::Device> device,
    Optional<bool> pin_memory,
    Optional<at::MemoryFormat> memory_format) {
  check_factory(device, pin_memory);
  const auto type = dtype.value_or(at::get_default_dtype_as_scalartype());
  check_dtype_on_device(type, "aten::empty");
  return finish_factory(at::detail::empty_generic(size, device_allocator(), kHpuKeys, type, memory_format));
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    Optional<at::ScalarType> dtype,
    Optional<c10::Layout> /*layout*/,
    Optional<c10::Device> device,
    Optional<bool> pin_memory) {
  check_factory(device, pin_memory);
  const auto type = dtype.value_or(at::get_default_dtype_as_scalartype());
  check_dtype_on_device(type, "aten::empty_strided");
  return finish_factory(at::detail::empty_strided_generic(size, stride, device_allocator(), kHpuKeys, type));
}

// The bridge preserves no strides: a clone is contiguous, or has the channels last.
at::Tensor clone(const at::Tensor& self, Optional<at::MemoryFormat> memory_format) {
  const auto format = memory_format.value_or(at::MemoryFormat::Preserve);
  if (!is_strict() || format != at::MemoryFormat::Preserve) {
    return at::native::clone(self, memory_format);
  }
  return at::empty(self.sizes(), self.options(), self.suggest_memory_format()).copy_(self);
}

// Grows `storage` to hold a contiguous tensor of `size` behind `offset`.
void grow_for_contiguous(const c10::Storage& storage, c10::IntArrayRef size, size_t itemsize, size_t offset) {
  if (c10::multiply_integers(size) != 0) {
    grow_storage(storage, at::detail::computeStorageNbytesContiguous(size, itemsize, offset));
  }
}

// Storages grow before metadata is set: if the memory is exhausted, the tensor must stay as it is.
const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, Optional<at::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    grow_for_contiguous(self.storage(), size, self.element_size(), self.storage_offset());
    impl->set_sizes_contiguous(size);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& set_storage_offset(
    at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(
      storage.device().type() == c10::DeviceType::HPU,
      "Attempted to set the storage of a tensor on device \"hpu:0\" to a storage on different device \"",
      storage.device(),
      "\".  This is no longer allowed; the devices must match.");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  auto* impl = self.unsafeGetTensorImpl();
  if (stride.empty() && !size.empty()) {
    grow_for_contiguous(storage, size, self.element_size(), offset);
    impl->set_storage_keep_dtype(std::move(storage));
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    grow_storage(storage, at::detail::computeStorageNbytes(size, stride, self.element_size(), offset));
    impl->set_storage_keep_dtype(std::move(storage));
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

// Lazy mode of the bridge has none of the forms without an offset. This one is not refused: stock torch copies storages
// through it, to load and to deepcopy tensors, where the torch of the bridge does not.
at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const auto elements = static_cast<int64_t>(storage.nbytes() / self.element_size());
  return set_storage_offset(self, std::move(storage), 0, {elements}, {1});
}

// Torch's parametrizations call the form with a tensor.
void check_set_not_lazy() {
  check_not_lazy("aten::set_", "call `copy_` or assign `data`, parametrize a module before it moves to hpu");
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  check_set_not_lazy();
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  check_set_not_lazy();
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), /*resizable=*/true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {1});
}

// No stream has pending work that could need the memory.
void record_stream(at::Tensor& /*self*/, c10::Stream /*stream*/) {}

#if HPU_SIM_TORCH < 206
// From 2.6 on, torch implements both for this device through its hooks.
bool is_pinned_kernel(const at::Tensor& self, Optional<c10::Device> /*device*/) {
  return is_pinned(self.storage().data());
}

at::Tensor pin_memory(const at::Tensor& self, Optional<c10::Device> /*device*/) {
  TORCH_CHECK(self.device().is_cpu(), "cannot pin '", self.toString(), "' only dense CPU tensors can be pinned");
  const size_t bytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize());
  const c10::Storage pinned(c10::Storage::use_byte_size_t(), bytes, pinned_allocator(), /*resizable=*/false);
  at::Tensor copy = at::empty({0}, self.options()).set_(pinned, 0, self.sizes(), self.strides());
  return copy.copy_(self);
}
#endif

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("clone", &clone);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_empty);
  m.impl("record_stream", &record_stream);
#if HPU_SIM_TORCH < 205
  m.impl("is_pinned", &is_pinned_kernel);
  m.impl("_pin_memory", &pin_memory);
#endif
}

#if HPU_SIM_TORCH == 205
// 2.5 chooses the kernels by the tensor, not by the device that is named, and its own know no hooks of this device.
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("is_pinned", &is_pinned_kernel);
  m.impl("_pin_memory", &pin_memory);
}
#endif

}  // namespace
}  // namespace hpu_sim
