// Number formats that a card refuses, or computes with in another format.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace hpu_sim {

// float16 and float8 exist from the second generation on.
void set_low_precision_supported(bool supported);

// Any of torch's 8 bit floating point formats.
bool is_float8(c10::ScalarType dtype);

// Throws the bridge's error for a dtype that no tensor on this card can have. For tensors that a program asks for.
void check_creatable(c10::ScalarType dtype);

// The same for tensors that an operator makes on its way, but for complex ones: they pass, and a listener is told that
// a card would refuse them, so that one run tells of all of them.
void check_result(c10::ScalarType dtype, const std::string& op);

}  // namespace hpu_sim
