// Compatibility shims for torch's C++ API of other releases. A guard names the first release of the newer form.
#pragma once

#include <torch/version.h>

#include <optional>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#define HPU_SIM_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

// 2.3: Allocator::allocate lost its const, and copy_data became pure virtual.
#if HPU_SIM_TORCH >= 203
#define HPU_SIM_ALLOCATE_CONST
#else
#define HPU_SIM_ALLOCATE_CONST const
#endif

// 2.9: torch.accelerator reads memory statistics from the allocator.
#if HPU_SIM_TORCH >= 209
#define HPU_SIM_ACCELERATOR_MEMORY
#include <c10/core/CachingDeviceAllocator.h>
#endif

namespace hpu_sim {

#ifdef HPU_SIM_ACCELERATOR_MEMORY
using AllocatorBase = c10::DeviceAllocator;
#else
using AllocatorBase = c10::Allocator;
#endif

// 2.2: c10::optional became std::optional.
#if HPU_SIM_TORCH >= 202
template <typename T>
using Optional = std::optional<T>;
inline constexpr std::nullopt_t kNone = std::nullopt;
#else
template <typename T>
using Optional = c10::optional<T>;
inline constexpr c10::nullopt_t kNone = c10::nullopt;
#endif

// 2.1: storages got mutable_data().
template <typename AnyStorage>
void* mutable_bytes(AnyStorage& storage) {
#if HPU_SIM_TORCH >= 201
  return storage.mutable_data();
#else
  return storage.data_ptr().get();
#endif
}

}  // namespace hpu_sim
