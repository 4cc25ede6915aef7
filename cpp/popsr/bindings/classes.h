// Classes of the module whose objects stay valid if memory runs out while they are made.
//
// pybind11 hands a new object to its Python wrapper before it has entered the wrapper into its table. When
// memory runs out there, the wrapper would free an object that its maker frees too; and for constructors that
// return a value it happens where nobody catches the exception. So each class is guarded, constructors return
// a std::unique_ptr or std::shared_ptr (make_unique<Class>(...)), and an object owns the objects that it
// needs: py::keep_alive has such a table of its own.
#pragma once

#include <memory>
#include <utility>

#include "popsr/bindings/bindings.h"

namespace popsr::bindings {

/// Makes an object that owns the objects it refers to.
template <class T, class Owner, class... Args>
std::shared_ptr<T> make_owning(Owner owner, Args&&... args) {
  struct Both {
    Both(Owner kept, Args&&... given) : owner(std::move(kept)), object(std::forward<Args>(given)...) {}
    Owner owner;
    T object;
  };
  auto both = std::make_shared<Both>(std::move(owner), std::forward<Args>(args)...);
  T* const object = &both->object;
  return std::shared_ptr<T>(std::move(both), object);
}

namespace detail {

template <class T>
struct Guard {
  /// Original function of pybind11.
  static inline void (*init)(py::detail::instance*, const void*) = nullptr;

  static void guarded_init(py::detail::instance* self, const void* holder) {
    try {
      init(self, holder);
    } catch (...) {
      py::detail::value_and_holder made =
          self->get_value_and_holder(py::detail::get_type_info(typeid(T), true));
      if (!made.holder_constructed()) {
        void*& value = made.value_ptr();
        if (made.instance_registered()) {
          py::detail::deregister_instance(self, value, made.type);
          made.set_instance_registered(false);
        }
        if (holder == nullptr) delete static_cast<T*>(value);  // else its holder frees it
        value = nullptr;
      }
      throw;
    }
  }
};

}  // namespace detail

/// Guards a class; called once for each class, before the module is used.
template <class T, class... Options>
py::class_<T, Options...>& guard(py::class_<T, Options...>& bound) {
  py::detail::type_info* const info = py::detail::get_type_info(typeid(T), true);
  detail::Guard<T>::init = std::exchange(info->init_instance, &detail::Guard<T>::guarded_init);
  return bound;
}

}  // namespace popsr::bindings
