// Tensors in the arguments and results of an operator.
#pragma once

#include <utility>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "torch_compat.h"

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

}  // namespace hpu_sim
