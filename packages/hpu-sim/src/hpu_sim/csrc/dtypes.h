// Dtypes that a card does not support, or computes in another dtype.
#pragma once

#include "common.h"

namespace hpu_sim {

// Whether the device has float16 and float8: the first generation of Gaudi does not.
inline std::atomic<bool> has_low_precision{true};

// Returns whether `dtype` is one of torch's 8-bit floating point dtypes.
bool is_float8(c10::ScalarType dtype);

// Throws the bridge's error for a dtype of host data that the device does not support.
void check_dtype_from_host(c10::ScalarType dtype);

// Throws the bridge's error for a dtype of an operator's result. Outside of strict mode complex results pass and notify
// the listener instead, so that one run finds all of them. float64 results, which a card computes in float32, notify it
// too.
void check_dtype_on_device(c10::ScalarType dtype, const std::string& op);

}  // namespace hpu_sim
