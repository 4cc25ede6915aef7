// Numbers of things, a type for each kind: a tensor's number is not accepted where an op's is expected.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ranges>
#include <vector>

namespace popsr {

/// Absence: of an Id, and of a position in a list, which is a plain integer.
struct NoId {
  constexpr operator std::uint32_t() const { return std::numeric_limits<std::uint32_t>::max(); }  // NOLINT
};
inline constexpr NoId kNone;

/// The number of a thing of the kind `Tag`. An Id made of nothing is kNone, unless the kind has a natural
/// zero (the main graph, the partition equal everywhere), which its tag declares: `static constexpr
/// std::uint32_t kDefault = 0;`.
template <class Tag>
struct Id {
  std::uint32_t value = initial();

  constexpr Id() = default;
  constexpr Id(NoId) : value(kNone) {}  // NOLINT: kNone is an Id of each kind
  constexpr explicit Id(std::integral auto number) : value(static_cast<std::uint32_t>(number)) {}

  constexpr std::size_t index() const { return value; }
  constexpr Id& operator++() {
    ++value;
    return *this;
  }
  constexpr Id operator++(int) {
    const Id before = *this;
    ++value;
    return before;
  }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;
  friend constexpr std::uint32_t format_as(Id id) { return id.value; }  ///< For fmt.

 private:
  static constexpr std::uint32_t initial() {
    if constexpr (requires { Tag::kDefault; }) {
      return Tag::kDefault;
    } else {
      return kNone;
    }
  }
};

/// The numbers of `count` things: 0 and on.
template <class I>
auto ids(std::size_t count) {
  return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(count)) |
         std::views::transform([](std::uint32_t number) { return I(number); });
}

/// An array with one element for each number of a kind: indexed by Id alone.
template <class I, class T, class Container = std::vector<T>>
class IdVector : public Container {
 public:
  using Container::Container;
  decltype(auto) operator[](I id) { return Container::operator[](id.index()); }
  decltype(auto) operator[](I id) const { return Container::operator[](id.index()); }
  /// The number of the element that is appended next.
  I next() const { return I(Container::size()); }
  auto ids() const { return popsr::ids<I>(Container::size()); }
};

}  // namespace popsr

template <class Tag>
struct std::hash<popsr::Id<Tag>> {
  std::size_t operator()(popsr::Id<Tag> id) const noexcept { return std::hash<std::uint32_t>()(id.value); }
};
