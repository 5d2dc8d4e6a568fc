#include "hccl_tensors.h"

#include <ATen/ops/cat.h>

#include "alias.h"
#include "allocator.h"
#include "dtypes.h"
#include "events.h"

namespace hpu_sim {
namespace {

void check_dtype(const char* name, c10::ScalarType dtype) {
  static const std::unordered_set<c10::ScalarType> supported = {
      at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt, at::kByte, at::kChar, at::kBool};
  if (supported.count(dtype) == 0 && !is_float8(dtype)) {
    throw_unsupported(name, "Input tensor data type is not supported for HCCL process group: ", dtype);
  }
}

template <typename Items, typename Function>
std::vector<std::invoke_result_t<Function, typename Items::const_reference>> map(
    const Items& items, const Function& function) {
  std::vector<std::invoke_result_t<Function, typename Items::const_reference>> results;
  results.reserve(items.size());
  for (const auto& item : items) {
    results.push_back(function(item));
  }
  return results;
}

bool is_native(const at::Tensor& tensor, NativeReduceDtypes native_dtypes) {
  const auto dtype = tensor.scalar_type();
#if HPU_SIM_TORCH < 202
  // Gloo has no bfloat16 before torch 2.2.
  if (dtype == at::kBFloat16) {
    return false;
  }
#endif
  // Gloo reduces no bool.
  return dtype == at::kFloat || dtype == at::kBFloat16 ||
         (native_dtypes == NativeReduceDtypes::kFloatsAndInts && (dtype == at::kInt || dtype == at::kLong));
}

}  // namespace

// Also false for tensors of several dtypes: gloo reduces them in one buffer.
bool are_native(const Tensors& tensors, NativeReduceDtypes native_dtypes) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return is_native(tensor, native_dtypes) && tensor.scalar_type() == tensors.front().scalar_type();
  });
}

// The alias is never an inference tensor: before torch 2.1, gloo's threads run outside inference mode and must not
// write to one.
at::Tensor as_checked_cpu_alias(const char* name, const at::Tensor& tensor) {
  if (!is_hpu_tensor(tensor)) {
    throw_unsupported(name, "hccl collectives need hpu tensors, got a tensor on ", tensor.device(), ".");
  }
  check_dtype(name, tensor.scalar_type());
  const c10::InferenceMode off(false);
  return as_cpu_alias(tensor);
}

void check_reduction(const char* name, const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
      return;
    case c10d::ReduceOp::PRODUCT:
      // The bridge accepts it, the library below does not.
      throw_unsupported(name, "HCCL reduces by SUM, MIN or MAX (simulated), got PRODUCT: gather and multiply instead.");
    default:
      throw_unsupported(name, "Unsupported ReduceOp for HCCL process group");
  }
}

Tensors concat_lists(const TensorLists& lists) {
  Tensors tensors;
  for (const auto& list : lists) {
    tensors.insert(tensors.end(), list.begin(), list.end());
  }
  return tensors;
}

TensorLists as_lists(const Tensors& tensors) {
  return map(tensors, [](const at::Tensor& tensor) { return Tensors{tensor}; });
}

at::Tensor as_rows(const at::Tensor& bytes) {
  const c10::InferenceMode off(false);
  return bytes.view({-1, bytes.size(-1)});
}

at::Tensor flatten(const Tensors& tensors) {
  return at::cat(map(tensors, [](const at::Tensor& tensor) { return tensor.reshape(-1); }));
}

std::vector<int64_t> numels(const Tensors& tensors) {
  return map(tensors, [](const at::Tensor& tensor) { return tensor.numel(); });
}

void unflatten_into(const at::Tensor& flat, const Tensors& tensors) {
  const auto parts = flat.split_with_sizes(numels(tensors));
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].copy_(parts[i].view(tensors[i].sizes()));
  }
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  const c10::InferenceMode off(false);
  return tensor.unsqueeze(-1).view(at::kByte);
}

at::Tensor as_input_bytes(const at::Tensor& tensor) {
  const c10::InferenceMode off(false);
  return as_bytes(tensor).contiguous();
}

at::Tensor OutputBuffers::add(const at::Tensor& alias, bool converts) {
  const c10::InferenceMode off(false);
  const auto buffer = converts ? alias.to(at::kFloat).contiguous() : alias.contiguous();
  if (!buffer.is_same(alias)) {
    aliases_.push_back(alias);
    buffers_.push_back(buffer);
  }
  return buffer;
}

std::function<void()> OutputBuffers::copy_back() const {
  if (aliases_.empty()) {
    return nullptr;
  }
  return [aliases = aliases_, buffers = buffers_] {
    for (size_t i = 0; i < aliases.size(); ++i) {
      aliases[i].copy_(buffers[i]);
    }
  };
}

Reduction make_allreduce(const Tensors& tensors) {
  const bool converts = !are_native(tensors, NativeReduceDtypes::kFloats);
  OutputBuffers outputs;
  auto buffers = map_tensors(tensors, [&](const at::Tensor& tensor) { return outputs.add(tensor, converts); });
  return {std::move(buffers), outputs.copy_back()};
}

void check_reduce_scatter(const char* name, const Tensors& outputs, const TensorLists& inputs, int size) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto sizes = numels(inputs[i]);
    const auto numel = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    TORCH_CHECK(
        numel == outputs[i].numel() * size,
        name,
        ": input tensor must be the same size as output size times world size, got ",
        numel,
        " elements for ",
        outputs[i].numel(),
        " times ",
        size);
  }
}

Reduction make_reduce_scatter(
    const Tensors& outputs, const TensorLists& inputs, NativeReduceDtypes native_dtypes, int rank) {
  auto buffers = map(inputs, &flatten);
  if (!are_native(buffers, native_dtypes)) {
    buffers = map(buffers, [](const at::Tensor& buffer) { return buffer.to(at::kFloat); });
  }
  auto copy_part = [outputs, buffers, rank] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto numel = outputs[i].numel();
      outputs[i].copy_(buffers[i].narrow(0, rank * numel, numel).view(outputs[i].sizes()));
    }
  };
  return {std::move(buffers), std::move(copy_part)};
}

}  // namespace hpu_sim
