// Recursion on threads with little stack.
#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"

namespace popsr {
namespace {

/// Calls body() on a thread with a stack of so many bytes.
void on_stack_of(std::size_t bytes, const std::function<void()>& body) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, bytes) == 0);
  pthread_t thread;
  const auto start = [](void* context) -> void* {
    (*static_cast<const std::function<void()>*>(context))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, start, const_cast<std::function<void()>*>(&body)) == 0);
  pthread_attr_destroy(&attributes);
  pthread_join(thread, nullptr);
}

/// Uses 4 kB of stack a level.
int sink(int levels) {
  volatile char block[4096] = {};
  block[0] = 1;
  return levels == 0 ? block[0] : sink(levels - 1) + block[0];
}

TEST_CASE("deep stack: what fits stays on its thread, else it gets another") {
  std::thread::id inside;
  const auto where = [&inside] { inside = std::this_thread::get_id(); };
  with_deep_stack(where);
  CHECK(inside == std::this_thread::get_id());
  on_stack_of(std::size_t{1} << 18, [&] {
    CHECK(stack_left() < (std::size_t{1} << 18));
    CHECK(stack_left() > (std::size_t{1} << 17));
    with_deep_stack(where);
    CHECK(inside != std::this_thread::get_id());
  });
}

TEST_CASE("deep stack: results and errors come back, recursion has the room it needs") {
  on_stack_of(std::size_t{1} << 17, [] {
    CHECK(with_deep_stack([] { return sink(200); }) == 201);
    CHECK(*with_deep_stack([] { return std::make_unique<std::string>("moved"); }) == "moved");
    CHECK_THROWS_WITH_AS(with_deep_stack([] { raise<GraphError>("deep: it fails"); }), "deep: it fails",
                         GraphError);
    // Calls that are on a large stack already stay there.
    CHECK(with_deep_stack([] {
      const std::thread::id outer = std::this_thread::get_id();
      return with_deep_stack([outer] { return outer == std::this_thread::get_id(); });
    }));
  });
}

}  // namespace
}  // namespace popsr
