// View operators. They only set metadata, so torch's CPU implementations serve any dense tensor.
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>

#include "common.h"

namespace hpu_sim {
namespace {

const at::Tensor& as_strided_(
    const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, Optional<int64_t> offset) {
  at::native::setStrided(self, size, stride, offset.value_or(self.storage_offset()));
  return self;
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("as_strided_", &as_strided_);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
}

}  // namespace
}  // namespace hpu_sim
