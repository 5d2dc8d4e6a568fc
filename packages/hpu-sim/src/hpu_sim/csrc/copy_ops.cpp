// Copies between host and device, and item().
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>

#include "alias.h"
#include "allocator.h"
#include "common.h"
#include "dtypes.h"
#include "events.h"
#include "execution.h"
#include "graph.h"
#include "host_allocators.h"
#include "planning.h"
#include "released_later.h"
#include "stream.h"

#if HPU_SIM_TORCH >= 201
#include <ATen/ops/_foreach_copy_native.h>
#endif

namespace hpu_sim {
namespace {

int64_t num_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

const char* direction(const at::Tensor& source, const at::Tensor& target) {
  return !is_hpu_tensor(source) ? "h2d" : is_hpu_tensor(target) ? "d2d" : "d2h";
}

const c10::OperatorHandle& copy_operator() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  return op;
}

void notify_of_copy(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const bool is_on_device = is_hpu_tensor(source) && is_hpu_tensor(self);
  Event event{is_on_device ? "operator" : direction(source, self), "aten::copy_"};
  if (!is_on_device) {
    const auto& cpu = is_hpu_tensor(source) ? self : source;
    event.detail = describe(source) + (is_pinned(cpu.storage().data()) ? ", pinned" : ", pageable");
    event.bytes = num_bytes(source);
  }
  if (is_recorded()) {
    event.op = &copy_operator();
    event.arguments = {self, source, non_blocking};
    event.results = {self};
  } else if (is_on_device) {
    return;
  }
  notify(event);
}

void record_copy(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool from_device = is_hpu_tensor(source);
  if (from_device && is_hpu_tensor(target)) {
    if (graph_recorder().lazy()) {
      graph_recorder().add_call(copy_operator(), {target, source, false});
    }
  } else if (from_device) {
    count(Tally::kD2h, num_bytes(source));
    // On the bridge a copy that does not block is asynchronous into pageable memory as well.
    if (non_blocking && (is_pinned(target.storage().data()) || execution_mode() == ExecutionMode::kLater)) {
      graph_recorder().flush();
    } else {
      wait_for_memory(source.storage());
      record_host_sync("copy to host");
    }
  } else {
    check_dtype_from_host(source.scalar_type());
    if (!non_blocking || is_pinned(source.storage().data())) {
      join_pipeline();
    }
    count(Tally::kH2d, num_bytes(source));
  }
}

// Launches a copy in the current stream.
void copy_later(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static_cast<void>(source.expand(self.sizes()));  // Throws if the shapes do not match.
  std::vector<c10::Storage> memory;
  for (const auto& tensor : {self, source}) {
    if (is_hpu_tensor(tensor)) {
      memory.push_back(tensor.storage());
    }
  }
  const auto push = [&memory](WorkKind kind, std::function<void()> work) {
    return launch_on_memory("aten::copy_", memory, std::move(work), kind);
  };
  if (!is_hpu_tensor(self)) {
    const auto staging = at::empty(source.sizes(), source.options().device(at::kCPU));
    const auto event = push(WorkKind::kCopy, [staging, from = as_cpu_alias(source)] { staging.copy_(from); });
    land_after(event, [target = self.detach(), staging] { target.copy_(staging); });
    if (is_blocking) {
      land();
    }
    return;
  }
  const auto target = as_cpu_alias(self);
  if (is_hpu_tensor(source)) {
    push(WorkKind::kKernel, [target, from = as_cpu_alias(source)] { target.copy_(from); });
  } else if (non_blocking && is_pinned(source.storage().data())) {
    // The host may change the source until the copy has run.
    push(WorkKind::kCopy, [target, from = source.detach()]() mutable {
      target.copy_(from);
      release_later(c10::intrusive_ptr<c10::TensorImpl>::reclaim(from.unsafeReleaseTensorImpl()));
    });
  } else {
    push(WorkKind::kKernel, [target, from = source.clone()] { target.copy_(from); });
  }
}

at::Tensor& copy_unrecorded(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  ensure_acquired();
  if (is_hpu_tensor(self) || is_hpu_tensor(source)) {
    record_copy(source, self, non_blocking);
  }
  if (is_planning()) {
    return copy_without_data(self, source);
  }
  const ScopedTraceEvent timed(direction(source, self), "aten::copy_", num_bytes(source));
  if (C10_UNLIKELY(execution_mode() == ExecutionMode::kLater) && (non_blocking || is_hpu_tensor(self))) {
    copy_later(self, source, non_blocking);
    return self;
  }
  as_cpu(self).copy_(as_cpu(source));
  return self;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  copy_unrecorded(self, source, non_blocking);
  if (is_heard()) {
    notify_of_copy(self, source, non_blocking);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  count(Tally::kD2h, static_cast<int64_t>(self.element_size()));
  wait_for_memory(self.storage());
  const auto planned = is_planning() ? std::make_optional(read_element(self)) : std::nullopt;
  record_host_sync(
      "aten::_local_scalar_dense", "host_sync", planned ? torch::jit::Stack{*planned} : torch::jit::Stack{});
  const ScopedTraceEvent timed("d2h", "aten::_local_scalar_dense", static_cast<int64_t>(self.element_size()));
  return planned ? *planned : at::_local_scalar_dense(as_cpu_alias(self));
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("copy_", &copy_);
  m.impl("_local_scalar_dense", &local_scalar_dense);
#if HPU_SIM_TORCH >= 201
  // Copies one by one: as on every accelerator, the sources may be CPU tensors.
  m.impl("_foreach_copy_", &at::native::foreach_tensor_copy_list_kernel_slow_);
#endif
}

}  // namespace
}  // namespace hpu_sim
