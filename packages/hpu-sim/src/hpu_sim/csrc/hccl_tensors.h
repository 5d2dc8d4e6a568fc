// Conversion of a collective's tensors to what gloo accepts, by HCCL's rules for dtypes and reductions. `name` is the
// collective's, for diagnostics.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hpu_sim {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

Tensors concat_lists(const TensorLists& lists);

// Returns a one-dimensional view: collectives on a single tensor split it by elements, whatever its shape.
at::Tensor as_1d(const at::Tensor& tensor);
Tensors as_1d(const Tensors& tensors);

// Copies tensors into one of one dimension and back, for collectives that gloo does not have for lists.
at::Tensor flatten(const Tensors& tensors);
std::vector<int64_t> numels(const Tensors& tensors);
void unflatten_into(const at::Tensor& flat, const Tensors& tensors);

// Returns a view as bytes, for collectives that copy bits: gloo does not have every dtype. The bytes of an element are
// a new last dimension, so that tensors are still split along the first one.
at::Tensor as_bytes(const char* name, const at::Tensor& tensor);
Tensors as_bytes(const char* name, const Tensors& tensors);
TensorLists as_bytes(const char* name, const TensorLists& lists);

// The dtypes that HCCL reduces without conversion.
enum class NativeReduceDtypes {
  kFloats,         // float32 and bfloat16: allreduce and reduce
  kFloatsAndInts,  // also int32 and int64: reduce_scatter
};

// Inputs and outputs of a reduction. As in the bridge, other dtypes are converted to float32, reduced synchronously and
// converted back, so float64 and integers beyond 2^24 lose precision.
class Reduction {
 public:
  Reduction(
      const char* name,
      const c10d::ReduceOp& op,
      const Tensors& outputs,
      const Tensors& inputs,
      NativeReduceDtypes native_dtypes);

  Tensors& outputs() { return is_converted_ ? float_outputs_ : outputs_; }
  Tensors& inputs() { return is_converted_ ? float_inputs_ : inputs_; }

  // To be called with gloo's work on `inputs` and `outputs`. Waits for it if the outputs have to be converted back.
  void finish(const WorkPtr& work);

 private:
  Tensors outputs_;
  Tensors inputs_;
  Tensors float_outputs_;
  Tensors float_inputs_;
  bool is_converted_ = false;
};

}  // namespace hpu_sim
