// Number formats that a card refuses, or computes with in another format.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace hpu_sim {

// float16 and float8 exist from the second generation on.
void set_low_precision_supported(bool supported);

// Any of torch's 8 bit floating point formats.
bool is_float8(c10::ScalarType dtype);

// Throws the bridge's error for a dtype that the card does not have. For data that a program brings to the device.
void check_dtype_from_host(c10::ScalarType dtype);

// The same for a tensor that is made on the device, by a program or by an operator on its way, but for complex ones:
// they pass, and a listener is told that a card would refuse them, so that one run tells of all of them. It is also
// told of float64, which a card computes in float32.
//
// A program may use one of these throughout, and telling costs more than many operators do. Of each operator a listener
// is told the first times, and from then on of every sixteenth tensor of a batch, another sixteenth in each batch:
// within sixteen batches every line has had its turn.
void check_dtype_on_device(c10::ScalarType dtype, const std::string& op);

// A batch ends where data come from the host, or the host waits for the device.
void end_dtype_batch();

}  // namespace hpu_sim
