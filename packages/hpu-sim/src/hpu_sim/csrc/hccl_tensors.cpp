#include "hccl_tensors.h"

#include <type_traits>

#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>

#include "alias.h"
#include "dtypes.h"
#include "observer.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

void check_reduction(const char* name, const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::PRODUCT:
      return;
    default:
      refuse(name, "Unsupported ReduceOp for HCCL process group");
  }
}

void check_dtype(const char* name, c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kBFloat16:
    case at::kHalf:
    case at::kDouble:
    case at::kLong:
    case at::kInt:
    case at::kByte:
    case at::kChar:
    case at::kBool:
      return;
    default:
      if (!is_float8(dtype)) {
        refuse(name, "Input tensor data type is not supported for HCCL process group: ", dtype);
      }
  }
}

// Tensors for gloo are no inference tensors, whatever the caller's mode: its thread has none before torch 2.1 and may
// not write into them.
at::Tensor on_host(const char* name, const at::Tensor& tensor) {
  if (!is_device_tensor(tensor)) {
    refuse(name, "hccl works on hpu tensors only, got a tensor on ", tensor.device(), ".");
  }
  check_dtype(name, tensor.scalar_type());
  const c10::InferenceMode off(false);
  return borrow_as_cpu(tensor);
}

template <typename Items, typename Function>
std::vector<std::invoke_result_t<Function, typename Items::const_reference>> each(
    const Items& items, const Function& function) {
  std::vector<std::invoke_result_t<Function, typename Items::const_reference>> results;
  results.reserve(items.size());
  for (const auto& item : items) {
    results.push_back(function(item));
  }
  return results;
}

Tensors on_host(const char* name, const Tensors& tensors) {
  return each(tensors, [name](const at::Tensor& tensor) { return on_host(name, tensor); });
}

Tensors as_float(const Tensors& tensors) {
  const c10::InferenceMode off(false);
  return each(tensors, [](const at::Tensor& tensor) { return tensor.to(at::kFloat); });
}

bool is_native(const at::Tensor& tensor, Natives natives) {
  const auto dtype = tensor.scalar_type();
#if HPU_SIM_TORCH < 202
  // Gloo has no bfloat16 yet.
  if (dtype == at::kBFloat16) {
    return false;
  }
#endif
  return dtype == at::kFloat || dtype == at::kBFloat16 ||
         (natives == Natives::kFloatsAndInts && (dtype == at::kInt || dtype == at::kLong));
}

}  // namespace

Tensors flatten(const TensorLists& lists) {
  Tensors flat;
  for (const auto& list : lists) {
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return flat;
}

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.view(-1);
}

Tensors flat(const Tensors& tensors) {
  return each(tensors, [](const at::Tensor& tensor) { return flat(tensor); });
}

at::Tensor joined(const Tensors& tensors) {
  return at::cat(each(tensors, [](const at::Tensor& tensor) { return tensor.reshape(-1); }));
}

std::vector<int64_t> sizes_of(const Tensors& tensors) {
  return each(tensors, [](const at::Tensor& tensor) { return tensor.numel(); });
}

void take_apart(const at::Tensor& joined, const Tensors& tensors) {
  const auto parts = joined.split_with_sizes(sizes_of(tensors));
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].copy_(parts[i].view(tensors[i].sizes()));
  }
}

at::Tensor as_bytes(const char* name, const at::Tensor& tensor) {
  const c10::InferenceMode off(false);
  return on_host(name, tensor).unsqueeze(-1).view(at::kByte);
}

Tensors as_bytes(const char* name, const Tensors& tensors) {
  return each(tensors, [name](const at::Tensor& tensor) { return as_bytes(name, tensor); });
}

TensorLists as_bytes(const char* name, const TensorLists& lists) {
  return each(lists, [name](const Tensors& list) { return as_bytes(name, list); });
}

Reduction::Reduction(
    const char* name, const c10d::ReduceOp& op, const Tensors& outputs, const Tensors& inputs, Natives natives) {
  check_reduction(name, op);
  outputs_ = on_host(name, outputs);
  inputs_ = on_host(name, inputs);
  for (const auto& tensor : inputs_) {
    converted_ |= !is_native(tensor, natives);
  }
  if (converted_) {
    float_outputs_ = as_float(outputs_);
    float_inputs_ = as_float(inputs_);
  }
}

void Reduction::finish(const WorkPtr& work) {
  if (!converted_) {
    return;
  }
  work->wait();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].copy_(float_outputs_[i]);
  }
}

}  // namespace hpu_sim
