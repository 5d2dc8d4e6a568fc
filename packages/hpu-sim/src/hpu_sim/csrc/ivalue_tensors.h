// Tensors in the arguments and results of an operator.
#pragma once

#include "common.h"

namespace hpu_sim {

// Replaces each tensor in `value`, alone or in a list, by what `function` returns for it. A list keeps its absent
// tensors. Returns whether `value` is a tensor or a list of tensors.
template <typename Function>
bool replace_tensors(c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    value = function(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    auto tensors = std::move(value).toTensorVector();
    for (auto& tensor : tensors) {
      tensor = function(std::move(tensor));
    }
    value = c10::List<at::Tensor>(std::move(tensors));
  } else if (value.isOptionalTensorList()) {
    c10::List<Optional<at::Tensor>> tensors;
    for (const Optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor.has_value() ? Optional<at::Tensor>(function(*tensor)) : kNone);
    }
    value = std::move(tensors);
  } else {
    return false;
  }
  return true;
}

// Calls `function` on each tensor in `value`, alone or in a list; undefined and absent ones are undefined.
template <typename Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor tensor : value.toTensorList()) {
      function(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const Optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      function(tensor.value_or(at::Tensor()));
    }
  }
}

// Returns whether a tensor is a number of the program.
inline bool is_wrapped_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Returns a copy of a number of the program, and any other tensor as it is.
inline at::Tensor copy_wrapped_number(const at::Tensor& tensor) {
  if (!is_wrapped_number(tensor)) {
    return tensor;
  }
  auto copy = tensor.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

}  // namespace hpu_sim
