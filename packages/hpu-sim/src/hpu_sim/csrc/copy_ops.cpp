// Copies between host and device, and item().
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "alias.h"
#include "allocator.h"
#include "counters.h"
#include "deferred.h"
#include "device_trace.h"
#include "diagnostics.h"
#include "dtypes.h"
#include "execution.h"
#include "graph.h"
#include "pinned_allocator.h"
#include "pipeline.h"
#include "recipe_key.h"
#include "strict.h"

namespace hpu_sim {
namespace {

constexpr uint64_t kCopyOpHash = 0x68707563;

int64_t num_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.element_size());
}

void report_copy(const char* kind, const at::Tensor& source, const at::Tensor& cpu) {
  if (C10_UNLIKELY(is_observed())) {
    const char* memory = is_pinned(cpu.storage().data()) ? ", pinned" : ", pageable";
    notify({kind, "aten::copy_", describe(source) + memory, num_bytes(source)});
  }
}

void record_copy(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool from_device = is_hpu_tensor(source);
  if (from_device && is_hpu_tensor(target)) {
    if (graph_recorder().lazy()) {
      static const std::string name = "aten::copy_";
      const auto describe_both = [&] { return describe(target) + ", " + describe(source); };
      graph_recorder().add(
          {kCopyOpHash, hash_combine(hash_metadata(target), hash_metadata(source)), name, describe_both});
    }
  } else if (from_device) {
    ++counters().d2h_copies;
    counters().d2h_bytes += num_bytes(source);
    // On the bridge a copy to the host is asynchronous into pinned memory only.
    if (non_blocking && is_pinned(target.storage().data())) {
      graph_recorder().flush();
    } else {
      record_host_sync("copy to host");
    }
    report_copy("d2h", source, target);
  } else {
    check_dtype_from_host(source.scalar_type());
    if (is_strict()) {
      check_range_from_host(source);
    }
    if (!non_blocking || is_pinned(source.storage().data())) {
      pipeline().join();
    }
    rotate_sampling_window();
    ++counters().h2d_copies;
    counters().h2d_bytes += num_bytes(source);
    report_copy("h2d", source, source);
  }
}

at::Tensor as_cpu(const at::Tensor& tensor) {
  return is_hpu_tensor(tensor) ? as_cpu_alias(tensor) : tensor;
}

const char* direction(const at::Tensor& source, const at::Tensor& target) {
  return !is_hpu_tensor(source) ? "h2d" : is_hpu_tensor(target) ? "d2d" : "d2h";
}

// Defers a copy between host and device; false for one that is synchronous on the bridge.
bool try_defer(const at::Tensor& self, const at::Tensor& source) {
  if (!is_hpu_tensor(source)) {
    // The eager pipeline copies pageable memory to a staging buffer first.
    const bool is_staged = Pipeline::is_on() && !is_pinned(source.storage().data());
    deferred_copies().push(as_cpu_alias(self), is_staged ? source.clone() : source.detach(), /*is_to_device=*/true);
    return true;
  }
  if (!is_hpu_tensor(self) && is_pinned(self.storage().data())) {
    // Later operators of the device must not change what is copied.
    deferred_copies().push(self.detach(), as_cpu_alias(source).clone(), /*is_to_device=*/false);
    return true;
  }
  return false;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  ensure_acquired();
  record_copy(source, self, non_blocking);
  const ScopedTraceEvent timed(direction(source, self), "aten::copy_", num_bytes(source));
  if (C10_UNLIKELY(execution_mode() == ExecutionMode::kNever)) {
    return self;
  }
  deferred_copies().run_for(is_hpu_tensor(source) ? source : self);
  if (C10_UNLIKELY(is_async() && non_blocking) && try_defer(self, source)) {
    return self;
  }
  deferred_copies().run_for(self);
  const at::Tensor target = as_cpu(self);
  target.copy_(as_cpu(source));
  if (is_hpu_tensor(self)) {
    round_to_stored(target);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  check_not_lazy("aten::_copy_from", "call `copy_`");
  at::Tensor result = target;
  return copy_(result, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  at::Tensor result = target;
  return copy_(result, source, /*non_blocking=*/false);
}

#if HPU_SIM_TORCH >= 201
// As on every accelerator, the sources may be CPU tensors.
void foreach_copy_(at::TensorList self, at::TensorList sources, bool non_blocking) {
  TORCH_CHECK(
      self.size() == sources.size(),
      "Tensor lists must have the same number of tensors, got ",
      self.size(),
      " and ",
      sources.size());
  for (size_t i = 0; i < self.size(); ++i) {
    self[i].copy_(sources[i], non_blocking);
  }
}
#endif

at::Scalar local_scalar_dense(const at::Tensor& self) {
  ++counters().d2h_copies;
  counters().d2h_bytes += static_cast<int64_t>(self.element_size());
  record_host_sync("aten::_local_scalar_dense");
  const ScopedTraceEvent timed("d2h", "aten::_local_scalar_dense", static_cast<int64_t>(self.element_size()));
  if (C10_UNLIKELY(execution_mode() == ExecutionMode::kNever)) {
    return at::zeros({}, self.options().device(at::kCPU)).item();
  }
  return at::_local_scalar_dense(as_cpu_alias(self));
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
#if HPU_SIM_TORCH >= 201
  m.impl("_foreach_copy_", &foreach_copy_);
#endif
}

}  // namespace
}  // namespace hpu_sim
