// Change of a live object's virtual functions.
#pragma once

#include <cstring>
#include <type_traits>

namespace hpu_sim {

// Makes virtual calls on `object` run the functions of `model`. The object lives on and keeps its state.
//
// The Itanium C++ ABI, which GCC and Clang implement on Linux, defines this: an object of a polymorphic class without
// virtual bases begins with the pointer to its virtual table, and every virtual call loads that pointer. C++ itself
// leaves a replacement of the object by one of another class undefined.
template <typename Interface>
void set_virtual_table(Interface& object, const Interface& model) {
#ifndef __GXX_ABI_VERSION
#error "The compiler must follow the Itanium C++ ABI."
#endif
  static_assert(std::is_polymorphic_v<Interface>);
  static_assert(sizeof(Interface) == sizeof(void*), "The interface must have no state that its functions could read.");
  std::memcpy(static_cast<void*>(&object), static_cast<const void*>(&model), sizeof(void*));
}

}  // namespace hpu_sim
