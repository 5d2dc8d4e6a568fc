#include "fallback.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/List.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "alias.h"
#include "counters.h"
#include "device_memory.h"
#include "device_trace.h"
#include "dtypes.h"
#include "generator.h"
#include "graph.h"
#include "observer.h"
#include "threads.h"
#include "torch_compat.h"

namespace hpu_sim {
namespace {

constexpr c10::DispatchKeySet kHostKeys(c10::DispatchKey::CPU);

// Index tensors and packed lengths may stay on the host beside device data, as on every accelerator.
bool may_stay_on_host(const c10::Argument& argument) {
  return argument.name() == "indices" || argument.name() == "lengths";
}

// What the schema of an operator says about running it, read once per operator and thread.
struct OpTraits {
  uint64_t id;
  bool keeps_results_on_host;  // `_pack_padded_sequence` returns its batch sizes on the CPU
  bool draws_without_generator;
  bool indexes;  // waits for the device only under a mask, whose true elements decide the shape
  bool waits_for_device;
  std::vector<bool> written;  // per argument, as the next
  std::vector<bool> may_stay_on_host;
};

OpTraits read_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  OpTraits traits{};
  traits.id = reinterpret_cast<uintptr_t>(&schema);
  traits.keeps_results_on_host = name == "aten::_pack_padded_sequence";
  traits.indexes = name == "aten::index" || name == "aten::_unsafe_index";
  traits.waits_for_device =
      !traits.indexes && (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape));
  traits.draws_without_generator = op.hasTag(at::Tag::nondeterministic_seeded);
  for (const auto& argument : schema.arguments()) {
    traits.written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    traits.may_stay_on_host.push_back(may_stay_on_host(argument));
    if (argument.name() == "generator") {
      traits.draws_without_generator = false;
    }
  }
  return traits;
}

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  // Per thread, so that no operator waits for a lock; schemas live as long as the process.
  thread_local std::unordered_map<const c10::FunctionSchema*, OpTraits> cache;
  const auto* schema = &op.schema();
  auto found = cache.find(schema);
  if (found == cache.end()) {
    found = cache.emplace(schema, read_traits(op)).first;
  }
  return found->second;
}

uint64_t hash_of(const at::Tensor& tensor) {
  uint64_t hash = static_cast<uint64_t>(tensor.scalar_type());
  for (const auto size : tensor.sizes()) {
    hash = hash_combine(hash, static_cast<uint64_t>(size));
  }
  return hash;
}

[[noreturn]] void refuse_layout(const c10::OperatorHandle& op, c10::Layout layout) {
  const std::string& name = op.operator_name().name;
  refuse(name, "Only dense tensors live on hpu (simulated), and ", name, " makes one of layout ", layout);
}

// What makes a sparse tensor of dense ones, as the gradient of a sparse embedding.
void refuse_sparse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  refuse_layout(op, at::kSparse);
}

// One call of one operator: lends the arguments, then takes the results back.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), traits_(traits_of(op)), stack_(stack) {}

  void lend_arguments() {
    const auto& arguments = op_.schema().arguments();
    const size_t first = stack_.size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) {
      lend_argument(stack_[first + i], i, arguments[i]);
    }
    check_devices();
    check_generator();
    if (graph_recorder().lazy()) {
      const auto describe_inputs = [this] { return describe_loans(); };
      graph_recorder().add({traits_.id, input_hash_, op_.operator_name().name, describe_inputs});
    }
    if (C10_UNLIKELY(traits_.waits_for_device || (traits_.indexes && masked_))) {
      synchronize_host(op_.operator_name().name);
    }
  }

  void run() {
    const Timed timed("kernel", op_.operator_name().name.c_str());
    if (C10_UNLIKELY(traits_.draws_without_generator)) {
      const DefaultGeneratorSwap swap;
      op_.redispatchBoxed(kHostKeys, &stack_);
    } else {
      op_.redispatchBoxed(kHostKeys, &stack_);
    }
  }

  void take_results() {
    for (const auto& loan : loans_) {
      if (loan.written) {
        follow_alias(loan.device, loan.cpu);
      }
    }
    const size_t count = op_.schema().returns().size();
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      take_result(stack_[i]);
    }
  }

 private:
  struct Loan {
    at::Tensor device;
    at::Tensor cpu;
    bool written;
  };

  at::Tensor lend(const at::Tensor& tensor, size_t argument) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!is_device_tensor(tensor)) {
      if (tensor.dim() > 0 && tensor.device().is_cpu() && !traits_.may_stay_on_host[argument]) {
        host_argument_ = static_cast<int64_t>(argument);
      }
      return tensor;
    }
    if (graph_recorder().lazy()) {
      input_hash_ = hash_combine(input_hash_, hash_of(tensor));
    }
    masked_ |=
        traits_.indexes && argument > 0 && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    loans_.push_back({tensor, borrow_as_cpu(tensor), traits_.written[argument]});
    return loans_.back().cpu;
  }

  void lend_argument(c10::IValue& value, size_t index, const c10::Argument& argument) {
    if (value.isTensor()) {
      value = lend(value.toTensor(), index);
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& tensor : tensors) {
        tensor = lend(tensor, index);
      }
      value = c10::List<at::Tensor>(std::move(tensors));
    } else if (value.isOptionalTensorList()) {
      c10::List<Optional<at::Tensor>> tensors;
      for (const Optional<at::Tensor> tensor : value.toOptionalTensorList()) {
        tensors.push_back(tensor.has_value() ? Optional<at::Tensor>(lend(*tensor, index)) : kNone);
      }
      value = std::move(tensors);
    } else if (value.isDevice() && value.toDevice().type() == c10::DeviceType::HPU) {
      value = c10::Device(c10::DeviceType::CPU);
      makes_on_device_ = true;
    } else if (value.isGenerator()) {
      value = lend_generator(value.toGenerator());
    } else if (value.isNone() && argument.name() == "generator") {
      value = host_generator(default_generator());
    }
  }

  at::Generator lend_generator(const at::Generator& generator) {
    const bool on_device = generator.device().type() == c10::DeviceType::HPU;
    generator_on_host_ = !on_device;
    generator_on_device_ = on_device;
    return on_device ? host_generator(generator) : generator;
  }

  void check_generator() const {
    const bool on_device = makes_on_device_ || !loans_.empty();
    TORCH_CHECK(!(generator_on_host_ && on_device), "Expected a 'hpu' device type for generator but found 'cpu'");
    TORCH_CHECK(!(generator_on_device_ && !on_device), "Expected a 'cpu' device type for generator but found 'hpu'");
  }

  void check_devices() const {
    if (C10_LIKELY(host_argument_ < 0) || loans_.empty()) {
      return;
    }
    const auto& schema = op_.schema();
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu! (when checking "
        "argument for argument ",
        schema.arguments()[host_argument_].name(),
        " in method ",
        schema.operator_name(),
        ")");
  }

  std::string describe_loans() const {
    std::string text;
    for (const auto& loan : loans_) {
      text += (text.empty() ? "" : ", ") + describe(loan.device);
    }
    return text;
  }

  void take_result(c10::IValue& value) {
    if (value.isTensor()) {
      value = take(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      auto tensors = std::move(value).toTensorVector();
      for (auto& tensor : tensors) {
        tensor = take(std::move(tensor));
      }
      value = c10::List<at::Tensor>(std::move(tensors));
    }
  }

  at::Tensor take(at::Tensor cpu) {
    if (!cpu.defined() || !cpu.device().is_cpu()) {
      return cpu;
    }
    if (C10_UNLIKELY(cpu.layout() != at::kStrided)) {
      refuse_layout(op_, cpu.layout());
    }
    if (C10_UNLIKELY(cpu.is_quantized())) {
      const std::string& name = op_.operator_name().name;
      refuse(name, "Quantized tensors do not live on hpu (simulated), and ", name, " makes one.");
    }
    if (traits_.keeps_results_on_host && cpu.scalar_type() == at::kLong) {
      return cpu;
    }
    auto storage = cpu.storage();
    // 2: the result's reference and ours. Memory that nobody else refers to is new, which is the common case.
    if (C10_UNLIKELY(storage.use_count() > 2)) {
      for (const auto& loan : loans_) {
        if (loan.cpu.is_same(cpu)) {
          return loan.device;  // An operator that returns its argument, as in-place and out variants do.
        }
      }
      for (const auto& loan : loans_) {
        if (loan.cpu.storage().is_alias_of(storage)) {
          return relabel_as_device(std::move(cpu), loan.device.storage());  // A view of an argument.
        }
      }
      for (const auto& [host, device] : adopted_) {
        if (host.is_alias_of(storage)) {
          return relabel_as_device(std::move(cpu), device);  // Two results in one piece of memory.
        }
      }
    }
    check_dtype_on_device(cpu.scalar_type(), op_.operator_name().name);
    auto device = lend_to_device(storage);
    if (op_.schema().returns().size() > 1) {
      adopted_.emplace_back(std::move(storage), device);
    }
    return relabel_as_device(std::move(cpu), std::move(device));
  }

  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  torch::jit::Stack& stack_;
  c10::SmallVector<Loan, 6> loans_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;
  uint64_t input_hash_ = 0;
  int64_t host_argument_ = -1;
  bool masked_ = false;
  bool makes_on_device_ = false;
  bool generator_on_host_ = false;
  bool generator_on_device_ = false;
};

}  // namespace

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ensure_acquired();
  follow_thread_count();
  HostCall call(op, *stack);
  call.lend_arguments();
  call.run();
  call.take_results();
}

TORCH_LIBRARY_IMPL(_, HPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, SparseHPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

}  // namespace hpu_sim
