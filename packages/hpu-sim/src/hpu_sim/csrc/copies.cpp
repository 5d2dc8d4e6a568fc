// Data that moves between host and device, and values that the host reads.
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "alias.h"
#include "counters.h"
#include "device_memory.h"
#include "device_trace.h"
#include "dtypes.h"
#include "graph.h"
#include "observer.h"

namespace hpu_sim {
namespace {

constexpr uint64_t kCopyWithinDevice = 0x68707563;

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.element_size());
}

void report_copy(const char* kind, const at::Tensor& source, const at::Tensor& host) {
  if (C10_UNLIKELY(is_observed())) {
    const char* memory = is_pinned(host.storage().data()) ? ", pinned" : ", pageable";
    notify({kind, "aten::copy_", describe(source) + memory, bytes_of(source)});
  }
}

void count_copy(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool from_device = is_device_tensor(source);
  if (from_device && is_device_tensor(target)) {
    if (graph_recorder().lazy()) {
      static const std::string name = "aten::copy_";
      const auto describe_inputs = [&source] { return describe(source); };
      graph_recorder().add({kCopyWithinDevice, static_cast<uint64_t>(source.numel()), name, describe_inputs});
    }
  } else if (from_device) {
    ++counters().d2h_copies;
    counters().d2h_bytes += bytes_of(source);
    // The bridge copies to the host asynchronously only into pinned memory.
    if (non_blocking && is_pinned(target.storage().data())) {
      graph_recorder().close();
    } else {
      synchronize_host("copy to host");
    }
    report_copy("d2h", source, target);
  } else {
    check_dtype_from_host(source.scalar_type());
    end_dtype_batch();
    ++counters().h2d_copies;
    counters().h2d_bytes += bytes_of(source);
    report_copy("h2d", source, source);
  }
}

at::Tensor as_host(const at::Tensor& tensor) {
  return is_device_tensor(tensor) ? borrow_as_cpu(tensor) : tensor;
}

const char* direction(const at::Tensor& source, const at::Tensor& target) {
  return !is_device_tensor(source) ? "h2d" : is_device_tensor(target) ? "d2d" : "d2h";
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  ensure_acquired();
  count_copy(source, self, non_blocking);
  const Timed timed(direction(source, self), "aten::copy_", bytes_of(source));
  as_host(self).copy_(as_host(source));
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor result = target;
  return copy_(result, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  ++counters().d2h_copies;
  counters().d2h_bytes += static_cast<int64_t>(self.element_size());
  synchronize_host("aten::_local_scalar_dense");
  const Timed timed("d2h", "aten::_local_scalar_dense", static_cast<int64_t>(self.element_size()));
  return at::_local_scalar_dense(borrow_as_cpu(self));
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace
}  // namespace hpu_sim
