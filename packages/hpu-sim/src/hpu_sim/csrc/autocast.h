// Kernels of torch.autocast("hpu"), registered from three op lists.
#pragma once

#include "common.h"

namespace hpu_sim {

// Registers the overloads of operators, by their names without namespace, such as "linear". A policy casts to the
// autocast dtype ("lower"), to float32 ("fp32"), or to the widest dtype among the inputs ("promote"). Returns the names
// that torch does not have. There is no unregistering: the bridge reads its lists once.
std::set<std::string> register_autocast(const std::map<std::string, std::string>& policies);

}  // namespace hpu_sim
