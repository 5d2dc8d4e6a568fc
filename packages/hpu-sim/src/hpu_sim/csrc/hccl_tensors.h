// Conversion of a collective's tensors to what gloo accepts, by HCCL's rules for dtypes and reductions. `name` is the
// collective's, for diagnostics.
#pragma once

#include "common.h"

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hpu_sim {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Returns a tensor, a list of tensors or a list of lists with each tensor replaced by what `function` returns for it.
template <typename Function>
at::Tensor map_tensors(const at::Tensor& tensor, const Function& function) {
  return function(tensor);
}

template <typename Item, typename Function>
std::vector<Item> map_tensors(const std::vector<Item>& items, const Function& function) {
  std::vector<Item> results;
  results.reserve(items.size());
  for (const auto& item : items) {
    results.push_back(map_tensors(item, function));
  }
  return results;
}

Tensors concat_lists(const TensorLists& lists);

// Returns a list of one tensor per tensor.
TensorLists as_lists(const Tensors& tensors);

// Returns a CPU tensor over the memory of a collective's hpu tensor. The functions below take such. Throws for dtypes
// that HCCL lacks, and tensors of other devices.
at::Tensor as_checked_cpu_alias(const char* name, const at::Tensor& tensor);

// Returns the bytes of a contiguous tensor as one row per element: collectives on a single tensor split it by elements,
// whatever its shape.
at::Tensor as_rows(const at::Tensor& bytes);

// Copies tensors into one of one dimension and back, for collectives that gloo does not have for lists.
at::Tensor flatten(const Tensors& tensors);
std::vector<int64_t> numels(const Tensors& tensors);
void unflatten_into(const at::Tensor& flat, const Tensors& tensors);

// Returns a view as bytes, for collectives that copy bits: gloo does not have every dtype. The bytes of an element are
// a new last dimension, so that tensors are still split along the first one.
at::Tensor as_bytes(const at::Tensor& tensor);

// Returns `as_bytes` of an input. Gloo reads memory in its order, so other tensors than contiguous ones are copied.
at::Tensor as_input_bytes(const at::Tensor& tensor);

// What gloo writes the results of a collective to: aliases of the caller's tensors, or copies of those that are not
// contiguous or are converted, from which `copy_back` copies once the work is waited for.
class OutputBuffers {
 public:
  at::Tensor add(const at::Tensor& alias, bool converts = false);

  // Returns the copying; empty if the results are in the caller's tensors.
  std::function<void()> copy_back() const;

 private:
  Tensors aliases_;
  Tensors buffers_;
};

// The dtypes that HCCL reduces without conversion.
enum class NativeReduceDtypes {
  kFloats,         // float32 and bfloat16
  kFloatsAndInts,  // also int32 and int64: reduce_scatter of a tensor
};

// A reduction, which gloo runs in place on `buffers`.
struct Reduction {
  Tensors buffers;
  std::function<void()> on_completed;  // copies results from the buffers to the outputs; empty if they are the outputs
};

// Returns whether HCCL reduces the tensors as they are. As in the bridge, others are reduced in float32, so float64 and
// integers beyond 2^24 lose precision, and the stream of the caller waits for the result.
bool are_native(const Tensors& tensors, NativeReduceDtypes native_dtypes);

// Throws the bridge's error for a reduction that HCCL lacks.
void check_reduction(const char* name, const c10d::ReduceOp& op);

// Returns the reduction of an allreduce or reduce in place.
Reduction make_allreduce(const Tensors& tensors);

// Throws if the inputs of a reduce_scatter are not the outputs of all ranks.
void check_reduce_scatter(const char* name, const Tensors& outputs, const TensorLists& inputs, int size);

// Returns the reduction of a reduce_scatter: an allreduce of flattened copies of `inputs`, a list per output, from
// which each output gets the part of `rank`. Gloo's own reduce_scatter works the same way, but has no future.
Reduction make_reduce_scatter(
    const Tensors& outputs, const TensorLists& inputs, NativeReduceDtypes native_dtypes, int rank);

}  // namespace hpu_sim
