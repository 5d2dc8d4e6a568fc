#pragma once

namespace hpu_sim {

// Whether the calling thread runs FusedSDPA with recomputation, whose kernel keeps no scores.
inline thread_local bool is_fused_attention = false;

}  // namespace hpu_sim
