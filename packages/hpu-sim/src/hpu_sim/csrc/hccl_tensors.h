// The tensors of a collective as gloo takes them, by HCCL's rules: what it refuses, what it converts, what it moves as
// mere bytes. `name` is the collective's, for what is told of a refusal.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hpu_sim {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

Tensors flatten(const TensorLists& lists);

// One dimension: collectives on a single tensor cut it into pieces by elements, whatever its shape.
at::Tensor flat(const at::Tensor& tensor);
Tensors flat(const Tensors& tensors);

// Tensors as one of one dimension, and back, for what gloo does not know of lists.
at::Tensor joined(const Tensors& tensors);
std::vector<int64_t> sizes_of(const Tensors& tensors);
void take_apart(const at::Tensor& joined, const Tensors& tensors);

// For collectives that only move bits: the bytes, since gloo has not every dtype. A new last dimension holds an
// element's bytes, so that pieces are still counted along the first dimension.
at::Tensor as_bytes(const char* name, const at::Tensor& tensor);
Tensors as_bytes(const char* name, const Tensors& tensors);
TensorLists as_bytes(const char* name, const TensorLists& lists);

enum class Natives {
  kFloats,         // float32 and bfloat16, of an all-reduce
  kFloatsAndInts,  // int32 and int64 too, of a reduce-scatter
};

// The tensors of a reduction. HCCL reduces few dtypes; the bridge converts the others to float32, waits for the
// reduction and converts back, so integers beyond 2^24 and float64 lose digits.
class Reduction {
 public:
  Reduction(const char* name, const c10d::ReduceOp& op, const Tensors& outputs, const Tensors& inputs, Natives natives);

  Tensors& outputs() { return converted_ ? float_outputs_ : outputs_; }
  Tensors& inputs() { return converted_ ? float_inputs_ : inputs_; }

  // To be called with gloo's work, once it has been given `inputs` and `outputs`.
  void finish(const WorkPtr& work);

 private:
  Tensors outputs_;
  Tensors inputs_;
  Tensors float_outputs_;
  Tensors float_inputs_;
  bool converted_ = false;
};

}  // namespace hpu_sim
