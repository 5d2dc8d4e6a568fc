#pragma once

namespace hpu_sim {

// Cards that this machine shows, of which a process takes one.
void set_device_count(int count);
int get_device_count();

}  // namespace hpu_sim
