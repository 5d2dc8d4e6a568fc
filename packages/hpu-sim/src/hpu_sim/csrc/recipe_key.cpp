#include "recipe_key.h"

#include <ATen/core/jit_type.h>

#include "alias.h"

namespace hpu_sim {
namespace {

constexpr uint64_t kAbsent = 0xc2b2ae3d27d4eb4fULL;  // hash of None and of an undefined tensor, and of no number in use
constexpr uint64_t kData = 2;                        // hash of an argument that is data

bool is_view(const at::Tensor& tensor) {
  return tensor.storage_offset() != 0 || tensor.storage().nbytes() != tensor.nbytes();
}

uint64_t hash_double(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint64_t hash_metadata(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return kAbsent;
  }
  uint64_t hash = hash_combine(0, static_cast<uint64_t>(tensor.scalar_type()));
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    hash = hash_combine(hash, static_cast<uint64_t>(sizes[i]));
    // The stride of a dimension of one element has no effect.
    hash = hash_combine(hash, sizes[i] == 1 ? 0 : static_cast<uint64_t>(strides[i]));
  }
  if (is_view(tensor)) {
    hash = hash_combine(hash, static_cast<uint64_t>(tensor.storage_offset()));
    hash = hash_combine(hash, static_cast<uint64_t>(tensor.storage().nbytes()));
  }
  return hash;
}

// Devices and generators hash to 0: a process has one device, and random states are data.
uint64_t hash_value(const c10::IValue& value) {
  if (value.isTensor()) {
    return hash_metadata(value.toTensor());
  }
  if (value.isNone()) {
    return kAbsent;
  }
  if (value.isInt()) {
    return static_cast<uint64_t>(value.toInt());
  }
  if (value.isBool()) {
    return static_cast<uint64_t>(value.toBool());
  }
  if (value.isDouble()) {
    return hash_double(value.toDouble());
  }
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return hash_combine(hash_double(number.real()), hash_double(number.imag()));
  }
  if (value.isString()) {
    return std::hash<std::string>()(value.toStringRef());
  }
  uint64_t hash = 0;
  if (value.isList()) {
    const auto items = value.toListRef();
    hash = hash_combine(0, items.size());
    for (const auto& item : items) {
      hash = hash_combine(hash, hash_value(item));
    }
  }
  return hash;
}

// Returns whether the schema type is Scalar, Scalar? or Scalar[].
bool is_scalar(const c10::Argument& argument) {
  const c10::Type* type = argument.type().get();
  while (type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::ListType) {
    type = type->containedTypes().front().get();
  }
  return type->kind() == c10::TypeKind::NumberType;
}

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() : value.isTensorList() || value.isOptionalTensorList();
}

bool has_tensor_input(const std::vector<c10::Argument>& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < schema.size(); ++i) {
    if (is_tensor(arguments[i]) && !schema[i].is_out()) {
      return true;
    }
  }
  return false;
}

// Returns whether the argument is data of the recipe and no part of its key.
bool is_data(const c10::Argument& argument, const c10::IValue& value, bool has_input) {
  return has_input && (value.isScalar() || value.isList()) && is_scalar(argument);
}

void append(std::string& text, const std::string& item) {
  text += (text.empty() ? "" : ", ") + item;
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::ostringstream text;
  text << describe(tensor);
  if (!tensor.is_contiguous()) {
    text << " stride" << tensor.strides();
  }
  if (is_view(tensor)) {
    text << " view at " << tensor.storage_offset() << " of " << tensor.storage().nbytes() << " bytes";
  }
  return text.str();
}

std::string describe_value(const c10::Argument& argument, const c10::IValue& value) {
  std::ostringstream text;
  text << argument.name() << '=';
  if (argument.name() == "dtype" && value.isInt()) {
    text << static_cast<c10::ScalarType>(value.toInt());
  } else {
    text << value;
  }
  return text.str();
}

bool is_default(const c10::Argument& argument, const c10::IValue& value) {
  return value.isNone() ||
         (argument.default_value().has_value() && hash_value(*argument.default_value()) == hash_value(value));
}

}  // namespace

uint64_t hash_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& schema = op.schema().arguments();
  const bool has_input = has_tensor_input(schema, arguments);
  uint64_t hash = 0;
  for (size_t i = 0; i < schema.size(); ++i) {
    const bool is_in_key = !is_data(schema[i], arguments[i], has_input);
    hash = hash_combine(hash, is_in_key ? hash_value(arguments[i]) : kData);
  }
  return hash;
}

std::string describe_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto& schema = op.schema().arguments();
  const bool has_input = has_tensor_input(schema, arguments);
  std::string text;
  for (size_t i = 0; i < schema.size(); ++i) {
    const auto& value = arguments[i];
    if (is_tensor(value)) {
      for (const auto& item : value.isTensor() ? c10::ArrayRef<c10::IValue>(value) : value.toListRef()) {
        if (is_tensor(item) && !item.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
          append(text, describe_tensor(item.toTensor()));
        }
      }
    } else if (
        !value.isGenerator() && !value.isDevice() && !is_default(schema[i], value) &&
        !is_data(schema[i], value, has_input)) {
      append(text, describe_value(schema[i], value));
    }
  }
  return text;
}

}  // namespace hpu_sim
