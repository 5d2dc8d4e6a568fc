#include "accumulation.h"

#include <cfenv>

#include <ATen/ops/empty.h>
#include <ATen/ops/norm.h>

#include "dtypes.h"
#include "fork_safety.h"

namespace hpu_sim {
namespace {

// Written while no operator runs.
std::map<std::string, Accumulation>& rules_by_dtype = *new std::map<std::string, Accumulation>();

struct Distances {
  ForkSafeMutex mutex;
  std::map<std::string, std::pair<int64_t, double>> by_name;
};

Distances& distances = *new Distances();

// Returns the position of the first of both operands; -1 for another operator.
int first_operand(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string, int> positions = {
      {"aten::mm", 0},
      {"aten::bmm", 0},
      {"aten::dot", 0},
      {"aten::addmm", 1},
      {"aten::addmm_", 1},
      {"aten::addmv", 1},
      {"aten::addmv_", 1},
      {"aten::baddbmm", 1},
      {"aten::baddbmm_", 1}};
  const auto found = positions.find(op.operator_name().name);
  return found == positions.end() ? -1 : found->second;
}

std::string dtype_name(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16"
         : dtype == at::kHalf   ? "float16"
         : is_float8(dtype)     ? "float8"
         : dtype != at::kFloat  ? ""
         : is_float8_product    ? "float8"
                                : "float32";
}

class ScopedRounding {
 public:
  explicit ScopedRounding(bool truncates) : before_(std::fegetround()) {
    std::fesetround(truncates ? FE_TOWARDZERO : FE_TONEAREST);
  }
  ~ScopedRounding() { std::fesetround(before_); }
  ScopedRounding(const ScopedRounding&) = delete;
  ScopedRounding& operator=(const ScopedRounding&) = delete;

 private:
  int before_;
};

// Writes the product of a [m, k] and b [k, n] to c. Not inlined, so that no sum leaves the scope of its rounding.
// Products of two float32 are exact in float64.
__attribute__((noinline)) void sum_products(
    const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, const Accumulation& rule) {
  std::vector<double> tree(static_cast<size_t>(n));
  std::vector<float> sums(static_cast<size_t>(n * rule.accumulators));
  for (int64_t row = 0; row < m; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (int64_t begin = 0; begin < k; begin += rule.tree) {
      std::fill(tree.begin(), tree.end(), 0.0);
      for (int64_t i = begin; i < std::min(begin + rule.tree, k); ++i) {
        const double left = a[row * k + i];
        for (int64_t j = 0; j < n; ++j) {
          tree[static_cast<size_t>(j)] += left * b[i * n + j];
        }
      }
      float* sum = &sums[static_cast<size_t>(begin / rule.tree % rule.accumulators * n)];
      for (int64_t j = 0; j < n; ++j) {
        sum[j] += static_cast<float>(tree[static_cast<size_t>(j)]);
      }
    }
    for (int64_t step = 1; step < rule.accumulators; step *= 2) {
      for (int64_t i = 0; i < rule.accumulators; i += 2 * step) {
        for (int64_t j = 0; j < n; ++j) {
          sums[static_cast<size_t>(i * n + j)] += sums[static_cast<size_t>((i + step) * n + j)];
        }
      }
    }
    std::copy_n(sums.begin(), n, c + row * n);
  }
}

// Returns the product in float32 of matrices, batches of them, or vectors.
at::Tensor multiply(const at::Tensor& left, const at::Tensor& right, const Accumulation& rule) {
  const auto a = (left.dim() == 1 ? left.unsqueeze(0) : left).to(at::kFloat).contiguous();
  const auto b = (right.dim() == 1 ? right.unsqueeze(1) : right).to(at::kFloat).contiguous();
  const int64_t m = a.size(-2);
  const int64_t k = a.size(-1);
  const int64_t n = b.size(-1);
  const int64_t batch = a.dim() == 3 ? a.size(0) : 1;
  auto c = at::empty({batch, m, n}, a.options());
  if (c.numel() != 0) {
    const ScopedRounding rounding(rule.truncates);
    for (int64_t i = 0; i < batch; ++i) {
      sum_products(
          a.data_ptr<float>() + i * m * k,
          b.data_ptr<float>() + i * k * n,
          c.data_ptr<float>() + i * m * n,
          m,
          n,
          k,
          rule);
    }
  }
  return c;
}

c10::Scalar scalar(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const char* name) {
  const auto index = op.schema().argumentIndexWithName(name);
  return index.has_value() ? arguments[static_cast<size_t>(*index)].toScalar() : c10::Scalar(1);
}

void keep_distance(const std::string& name, const at::Tensor& plain, const at::Tensor& result) {
  const auto wide = plain.to(at::kFloat);
  const double size = at::norm(wide).item<double>();
  const double distance = size > 0 ? at::norm(result.to(at::kFloat).sub(wide)).item<double>() / size : 0.0;
  const std::lock_guard<std::mutex> lock(distances.mutex);
  auto& [calls, largest] = distances.by_name[name];
  ++calls;
  largest = std::max(largest, distance);
}

}  // namespace

void set_accumulation(const std::map<std::string, std::tuple<int64_t, int64_t, bool>>& rules) {
  rules_by_dtype.clear();
  for (const auto& [dtype, rule] : rules) {
    const auto& [tree, accumulators, truncates] = rule;
    rules_by_dtype[dtype] = {dtype, tree, accumulators, truncates};
  }
}

bool has_accumulation() {
  return !rules_by_dtype.empty();
}

const Accumulation* find_accumulation(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const int first = first_operand(op);
  if (first < 0) {
    return nullptr;
  }
  const auto& operand = stack[stack.size() - op.schema().arguments().size() + static_cast<size_t>(first)].toTensor();
  const auto found = rules_by_dtype.find(dtype_name(operand.scalar_type()));
  return found == rules_by_dtype.end() ? nullptr : &found->second;
}

void run_accumulated(
    const Accumulation& rule,
    const c10::OperatorHandle& op,
    torch::jit::Stack& stack,
    const std::function<void()>& run) {
  const torch::jit::Stack arguments(
      stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack.end());
  const auto first = static_cast<size_t>(first_operand(op));
  // A copy: the operator may write to it.
  const auto addend = first == 0 ? at::Tensor() : arguments[0].toTensor().to(at::kFloat, false, /*copy=*/true);
  run();
  const auto result = stack.back().toTensor();
  auto product = multiply(arguments[first].toTensor(), arguments[first + 1].toTensor(), rule).reshape(result.sizes());
  if (addend.defined()) {
    product.mul_(scalar(op, arguments, "alpha"));
    const auto beta = scalar(op, arguments, "beta");
    if (beta.toDouble() != 0) {
      product.add_(addend, beta);
    }
  }
  product = product.to(result.scalar_type());
  keep_distance(op.operator_name().name.substr(6) + " of " + rule.dtype, result, product);
  result.copy_(product);
}

std::map<std::string, std::pair<int64_t, double>> accumulation_distances() {
  const std::lock_guard<std::mutex> lock(distances.mutex);
  return distances.by_name;
}

}  // namespace hpu_sim
