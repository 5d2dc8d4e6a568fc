#include "dtypes.h"

#include <atomic>

#include <c10/util/Exception.h>

#include "observer.h"

namespace hpu_sim {
namespace {

std::atomic<bool> low_precision_supported{true};

void check_low_precision(c10::ScalarType dtype) {
  if (C10_LIKELY(low_precision_supported.load(std::memory_order_relaxed))) {
    return;
  }
  TORCH_CHECK(dtype != c10::ScalarType::Half, "float16/half is not supported on Gaudi.");
  TORCH_CHECK(!is_float8(dtype), "FP8 not supported on Gaudi, Gaudi2 or higher required");
}

}  // namespace

bool is_float8(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) && c10::elementSize(dtype) == 1;
}

void set_low_precision_supported(bool supported) {
  low_precision_supported = supported;
}

void check_dtype_from_host(c10::ScalarType dtype) {
  TORCH_CHECK(!c10::isComplexType(dtype), "Complex datatype is not supported on HPU device.");
  check_low_precision(dtype);
}

void check_dtype_on_device(c10::ScalarType dtype, const std::string& op) {
  check_low_precision(dtype);
  if (C10_UNLIKELY(is_observed())) {
    if (c10::isComplexType(dtype)) {
      notify({"dtype", op, "complex"});
    } else if (dtype == c10::ScalarType::Double) {
      notify({"dtype", op, "float64"});
    }
  }
}

}  // namespace hpu_sim
