#include "dtypes.h"

#include "events.h"
#include "strict.h"

namespace hpu_sim {
namespace {

void check_low_precision(c10::ScalarType dtype, const std::string& op) {
  if (C10_LIKELY(has_low_precision.load(std::memory_order_relaxed))) {
    return;
  }
  if (dtype == c10::ScalarType::Half) {
    throw_unsupported(op, "float16/half is not supported on Gaudi.");
  }
  if (is_float8(dtype)) {
    throw_unsupported(op, "FP8 not supported on Gaudi, Gaudi2 or higher required");
  }
}

constexpr const char* kComplexText = "Complex datatype is not supported on HPU device.";

}  // namespace

bool is_float8(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) && c10::elementSize(dtype) == 1;
}

void check_dtype_from_host(c10::ScalarType dtype) {
  static const std::string op = "aten::copy_";
  if (c10::isComplexType(dtype)) {
    throw_unsupported(op, kComplexText);
  }
  check_low_precision(dtype, op);
}

void check_dtype_on_device(c10::ScalarType dtype, const std::string& op) {
  check_low_precision(dtype, op);
  const bool is_complex = c10::isComplexType(dtype);
  if (C10_UNLIKELY(is_complex)) {
    if (is_strict()) {
      throw_unsupported(op, kComplexText);
    }
    count(Tally::kComplexResult);
  }
  if (C10_UNLIKELY(is_observed()) && (is_complex || dtype == c10::ScalarType::Double)) {
    notify({"dtype", op, is_complex ? "complex" : "float64"});
  }
}

}  // namespace hpu_sim
