// Part of a recipe's key that one operator call contributes.
//
// A card compiles a graph to a recipe and looks later graphs up by a key. The key consists of each operator in order
// and of its arguments: dtype, sizes and strides of a tensor, the offset and the base's size for a view, and every
// non-tensor argument, such as a dimension, a padding or the probability of a dropout.
//
// Numbers of the schema type Scalar (`alpha`, `value`, `exponent`) beside a tensor are data of the recipe: a new
// learning rate compiles nothing. Without a tensor beside them, as in `arange`, they determine the shape and are part
// of the key. This last distinction is the simulator's, because no published source states the bridge's.
#pragma once

#include "common.h"

namespace hpu_sim {

// Combines `seed` and `value` into a hash that depends on their order. `seed` is 0 or a hash: of two small numbers,
// such as a dtype and a size, others would have the same.
inline uint64_t hash_combine(uint64_t seed, uint64_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ULL)) * 1099511628211ULL;
}

// Returns the hash of the part of the key that the arguments of `op` contribute.
uint64_t hash_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

// Returns the same part as text, without defaults, such as "Float[2, 3] stride[1, 2], dim=[0]".
std::string describe_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace hpu_sim
