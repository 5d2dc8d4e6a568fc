// Dtypes that a card does not support, or computes in another dtype.
#pragma once

#include "common.h"

namespace hpu_sim {

// Whether the device has float16 and float8: the first generation of Gaudi does not.
inline std::atomic<bool> has_low_precision{true};

// Whether the device has int64. If not, it stores int64 as int32.
inline std::atomic<bool> has_int64{true};

// Returns whether `dtype` is one of torch's 8-bit floating point dtypes.
bool is_float8(c10::ScalarType dtype);

// Throws the bridge's error for a dtype of host data that the device does not support.
void check_dtype_from_host(c10::ScalarType dtype);

// Returns whether the device stores elements of a dtype in half of torch's bytes, in strict mode: see
// `round_to_stored`.
bool is_stored_in_half(c10::ScalarType dtype);

// Rounds a tensor on the CPU to what the device stores in strict mode: float64 as float32, and int64 as int32 on a
// device without int64.
void round_to_stored(const at::Tensor& cpu);

// Throws the bridge's error for a dtype of an operator's result. Outside of strict mode complex results pass and notify
// the listener instead, so that one run finds all of them. float64 results, which a card computes in float32, notify it
// too.
void check_dtype_on_device(c10::ScalarType dtype, const std::string& op);

}  // namespace hpu_sim
