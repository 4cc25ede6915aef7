// Stack for recursion: graphs nest up to 200 deep, and threads may be made with less stack than that takes.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>

namespace popsr {

/// Enough for any recursion over the nested graphs of a program.
inline constexpr std::size_t kDeepStack = std::size_t{1} << 20;

/// Bytes of stack that the calling thread has left.
std::size_t stack_left();

/// Calls body(context) on a new thread with a large stack, while this one waits; what it throws is thrown
/// here.
void call_on_large_stack(void (*body)(void* context), void* context);

/// body(), on this thread if it has kDeepStack left, else on one of its own. It must not depend on its
/// thread: in particular it must not call Python.
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
