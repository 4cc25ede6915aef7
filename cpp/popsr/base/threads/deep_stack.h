// Stack for recursion: graphs nest up to 200 deep, and threads may be created with less stack than that
// takes.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>

namespace popsr {

/// Stack size that suffices for any recursion over the nested graphs of a program.
inline constexpr std::size_t kDeepStack = std::size_t{1} << 20;

/// Bytes of stack left on the calling thread.
std::size_t stack_left();

/// Calls body(context) on a new thread with a large stack and waits; exceptions are rethrown on the calling
/// thread.
void call_on_large_stack(void (*body)(void* context), void* context);

/// Calls body() and returns its result, on this thread if it has kDeepStack bytes of stack left, otherwise
/// on a new one. It must not depend on its thread: in particular it must not call Python.
template <class Body>
auto with_deep_stack(const Body& body) -> std::invoke_result_t<const Body&> {
  using Result = std::invoke_result_t<const Body&>;
  if (stack_left() >= kDeepStack) return body();
  if constexpr (std::is_void_v<Result>) {
    call_on_large_stack([](void* context) { (*static_cast<const Body*>(context))(); },
                        const_cast<Body*>(&body));
  } else {
    std::optional<Result> result;
    const auto call = [&] { result.emplace(body()); };
    using Call = decltype(call);
    call_on_large_stack([](void* context) { (*static_cast<const Call*>(context))(); },
                        const_cast<std::remove_const_t<Call>*>(&call));
    return *std::move(result);
  }
}

}  // namespace popsr
