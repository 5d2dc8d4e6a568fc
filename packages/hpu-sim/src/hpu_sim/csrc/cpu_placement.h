// Operators without a kernel on a card, which it runs on the CPU: a host-device synchronization, and copies both ways.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>

namespace hpu_sim {

// Registers the kernel of each operator that has neither a decomposition nor its name in `device_operators`, which are
// names without namespace, overload and the underscore of in-place forms. To be called before
// `register_explicit_fallbacks`.
void register_cpu_placement(const std::unordered_set<std::string>& device_operators);

// Sets whether such operators run. PT_HPU_PLACE_ON_CPU=none forbids them.
void set_cpu_placement_allowed(bool allowed);

// Returns the number of calls of each such operator.
std::map<std::string, int64_t> cpu_placement_counts();

}  // namespace hpu_sim
