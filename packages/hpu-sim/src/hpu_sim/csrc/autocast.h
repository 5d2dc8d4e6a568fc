// torch.autocast("hpu"): three lists of operator names say which operators cast their inputs, and to what.
#pragma once

#include <string>
#include <vector>

namespace hpu_sim {

enum class CastPolicy {
  kLower,  // to the autocast dtype
  kFloat32,
  kPromote,  // to the widest dtype among the inputs
};

// Registers one operator, by its name without namespace and overload, such as "linear". False where torch has none of
// that name. The bridge reads its lists once, so there is no way back.
bool register_autocast(const std::string& name, CastPolicy policy);

}  // namespace hpu_sim
