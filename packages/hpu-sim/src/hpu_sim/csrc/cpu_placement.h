// Operators without a kernel on a card, which it runs on the CPU: a host-device synchronization, and copies both ways.
#pragma once

#include "common.h"

namespace hpu_sim {

// Names of dtypes, such as "Half", by operator, such as "mm.out". An operator that is absent has all dtypes.
using DeviceDtypes = std::unordered_map<std::string, std::unordered_set<std::string>>;

// Returns a name without namespace, overload and the underscore of in-place forms.
std::string base_name(const c10::OperatorName& name);

// Registers the kernel of each operator that runs on the CPU: one that has neither a decomposition nor its name in
// `device_operators`, by `base_name`. Registers the CPU fallback for each operator that has both a composite and a CPU
// kernel: torch would otherwise prefer the composite kernel on hpu, whose numbers differ from the CPU's, and a list of
// tensors would cost many calls.
//
// To be called once, after torch has registered its operators.
void register_operators(const std::unordered_set<std::string>& device_operators, DeviceDtypes device_dtypes);

// Boxed kernel for an operator that has none on a card: runs on the CPU, as a host-device synchronization.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Returns whether an operator of the program's own, or of a library, has no kernel on a card.
bool is_custom_on_cpu(const c10::OperatorHandle& op);

// Returns whether a card has a kernel of the operator for a dtype.
bool has_device_kernel(const c10::OperatorHandle& op, const std::string& dtype);

// Whether these operators run; otherwise they throw the bridge's error, as with PT_HPU_PLACE_ON_CPU=none.
inline std::atomic<bool> is_cpu_placement_allowed{true};

// Whether HPU graphs are being captured, in which none of these operators can run.
inline std::atomic<bool> is_capturing{false};

// Returns the number of calls of each such operator.
std::map<std::string, int64_t> cpu_placement_counts();

}  // namespace hpu_sim
