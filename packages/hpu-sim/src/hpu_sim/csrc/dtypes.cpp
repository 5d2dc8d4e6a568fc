#include "dtypes.h"

#include <atomic>
#include <cstdint>
#include <unordered_map>

#include "observer.h"

namespace hpu_sim {
namespace {

std::atomic<bool> low_precision_supported{true};

void check_low_precision(c10::ScalarType dtype, const std::string& op) {
  if (C10_LIKELY(low_precision_supported.load(std::memory_order_relaxed))) {
    return;
  }
  if (dtype == c10::ScalarType::Half) {
    refuse(op, "float16/half is not supported on Gaudi.");
  }
  if (is_float8(dtype)) {
    refuse(op, "FP8 not supported on Gaudi, Gaudi2 or higher required");
  }
}

constexpr uint64_t kToldFirst = 64;
constexpr uint64_t kThenOneOf = 16;

std::atomic<uint64_t> dtype_batch{0};

// What one thread made of dtypes that are told of.
struct Made {
  uint64_t listener = 0;
  uint64_t batch = 0;
  uint64_t in_batch = 0;
  std::unordered_map<std::string, uint64_t> by_op;
};

bool is_to_be_told(const std::string& op) {
  thread_local Made made;
  const uint64_t listener = listeners.load(std::memory_order_relaxed);
  if (made.listener != listener) {
    made = Made{listener};
  }
  const uint64_t batch = dtype_batch.load(std::memory_order_relaxed);
  if (made.batch != batch) {
    made.batch = batch;
    made.in_batch = 0;
  }
  const bool has_its_turn = (batch + made.in_batch++) % kThenOneOf == 0;
  return has_its_turn || made.by_op[op]++ < kToldFirst;
}

}  // namespace

bool is_float8(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) && c10::elementSize(dtype) == 1;
}

void set_low_precision_supported(bool supported) {
  low_precision_supported = supported;
}

void check_dtype_from_host(c10::ScalarType dtype) {
  static const std::string op = "aten::copy_";
  if (c10::isComplexType(dtype)) {
    refuse(op, "Complex datatype is not supported on HPU device.");
  }
  check_low_precision(dtype, op);
}

void check_dtype_on_device(c10::ScalarType dtype, const std::string& op) {
  check_low_precision(dtype, op);
  if (C10_UNLIKELY(is_observed())) {
    const bool is_complex = c10::isComplexType(dtype);
    if ((is_complex || dtype == c10::ScalarType::Double) && is_to_be_told(op)) {
      notify({"dtype", op, is_complex ? "complex" : "float64"});
    }
  }
}

void end_dtype_batch() {
  dtype_batch.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hpu_sim
