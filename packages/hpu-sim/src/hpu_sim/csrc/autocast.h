// Kernels of torch.autocast("hpu"), registered from three op lists.
#pragma once

#include "common.h"

namespace hpu_sim {

// Registers the overloads of one operator, by its name without namespace, such as "linear". The policy casts to the
// autocast dtype ("lower"), to float32 ("fp32"), or to the widest dtype among the inputs ("promote"). Returns false if
// torch has no such operator. There is no unregistering: the bridge reads its lists once.
bool register_autocast(const std::string& name, const std::string& policy);

}  // namespace hpu_sim
