// Kernels of torch.autocast("hpu"), registered from three op lists.
#pragma once

#include "common.h"

namespace hpu_sim {

enum class CastPolicy {
  kLower,  // to the autocast dtype
  kFloat32,
  kPromote,  // to the widest dtype among the inputs
};

// Registers the overloads of one operator, by its name without namespace, such as "linear". Returns false if torch has
// no such operator. There is no unregistering: the bridge reads its lists once.
bool register_autocast(const std::string& name, CastPolicy policy);

}  // namespace hpu_sim
