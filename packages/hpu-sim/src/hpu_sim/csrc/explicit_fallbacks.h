#pragma once

namespace hpu_sim {

// Registers the CPU fallback for each operator that has both a composite and a CPU kernel. Torch would otherwise prefer
// the composite kernel on hpu: its numbers differ from the CPU's, and a list of tensors would cost many calls.
//
// To be called once, after torch has registered its operators.
void register_explicit_fallbacks();

}  // namespace hpu_sim
