#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace hpu_sim {

// A process owns one card, whatever its module id, and sees it as index 0; throws the bridge's error for another one.
void check_index(c10::DeviceIndex index);

// Cards that this machine shows, of which a process takes one.
void set_device_count(int count);
int get_device_count();

// Streams by number: 0 is the default, others come from a pool as on the bridge. For torch releases whose Python cannot
// ask a guard for them.
int64_t current_stream_id();
void set_current_stream_id(int64_t id);
int64_t new_stream_id();

}  // namespace hpu_sim
