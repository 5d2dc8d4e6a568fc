#include "alias.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include "allocator.h"

namespace hpu_sim {

namespace {

// A CPU kernel would crash on a tensor whose storage was resized, as FSDP frees parameters.
void check_in_bounds(const c10::TensorImpl& tensor) {
  const size_t available = tensor.unsafe_storage().nbytes();
  const size_t itemsize = tensor.dtype().itemsize();
  // The common case needs only what the tensor caches.
  if (C10_LIKELY(
          tensor.is_contiguous() &&
          static_cast<size_t>(tensor.storage_offset() + tensor.numel()) * itemsize <= available)) {
    return;
  }
  const size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), itemsize, tensor.storage_offset());
  TORCH_CHECK(
      needed <= available,
      "hpu tensors must lie within their storage, got a tensor of sizes ",
      tensor.sizes(),
      " that ends at byte ",
      needed,
      " of a storage of ",
      available,
      " bytes: the storage was freed or resized (simulated).");
}

}  // namespace

at::Tensor as_cpu_alias(const at::Tensor& hpu) {
  const auto* source = hpu.unsafeGetTensorImpl();
  check_in_bounds(*source);
  auto cpu = at::detail::make_tensor<c10::TensorImpl>(
      cpu_storage(hpu.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), source->dtype());
  auto* impl = cpu.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (C10_UNLIKELY(source->is_conj())) {
    impl->_set_conj(true);
  }
  if (C10_UNLIKELY(source->is_neg())) {
    impl->_set_neg(true);
  }
  if (C10_UNLIKELY(source->is_wrapped_number())) {
    impl->set_wrapped_number(true);
  }
  return cpu;
}

at::Tensor as_hpu_tensor(at::Tensor cpu, c10::Storage storage) {
  auto* impl = cpu.unsafeGetTensorImpl();
  if (cpu.use_count() == 1) {
    // Nobody else holds the result, so its TensorImpl is reused, which spares an allocation.
    impl->set_storage_keep_dtype(std::move(storage));
    impl->_change_backend_component_keys(kDevice);
    return cpu;
  }
  auto hpu = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::HPU), impl->dtype());
  auto* copy = hpu.unsafeGetTensorImpl();
  copy->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  copy->_set_conj(impl->is_conj());
  copy->_set_neg(impl->is_neg());
  return hpu;
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes();
  return text.str();
}

void sync_metadata(const at::Tensor& hpu, const at::Tensor& cpu) {
  auto* target = hpu.unsafeGetTensorImpl();
  if (target->sizes() != cpu.sizes() || target->strides() != cpu.strides() ||
      target->storage_offset() != cpu.storage_offset()) {
    target->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
}

}  // namespace hpu_sim
