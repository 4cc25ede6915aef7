#include "popsr/base/threads/deep_stack.h"

#include <pthread.h>

#include <cstdint>
#include <exception>
#include <system_error>

namespace popsr {
namespace {

constexpr std::size_t kLargeStack = std::size_t{1} << 24;  // of which what is not used costs no memory

/// The lowest address of this thread's stack; 0 if that is not known.
std::uintptr_t stack_end() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  std::size_t size = 0, guard = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_getguardsize(&attributes, &guard);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<std::uintptr_t>(lowest) + guard;
}

struct Call {
  void (*body)(void* context);
  void* context;
  std::exception_ptr failure = nullptr;
};

void* run(void* argument) {
  Call& call = *static_cast<Call*>(argument);
  try {
    call.body(call.context);
  } catch (...) {
    call.failure = std::current_exception();
  }
  return nullptr;
}

void check(int error) {
  if (error != 0) throw std::system_error(error, std::generic_category(), "a thread for nested graphs");
}

}  // namespace

std::size_t stack_left() {
  thread_local const std::uintptr_t end = stack_end();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return here > end ? here - end : 0;
}

void call_on_large_stack(void (*body)(void* context), void* context) {
  Call call{body, context};
  pthread_attr_t attributes;
  check(pthread_attr_init(&attributes));
  pthread_attr_setstacksize(&attributes, kLargeStack);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run, &call);
  pthread_attr_destroy(&attributes);
  check(error);
  pthread_join(thread, nullptr);
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace popsr
