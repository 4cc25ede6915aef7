// Typed ids: a tensor's number is not accepted where an op's is expected.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace popsr {

/// Type of kNone, an absent Id or an absent position in a list, which is a plain integer.
struct NoId {
  constexpr operator std::uint32_t() const { return std::numeric_limits<std::uint32_t>::max(); }  // NOLINT
};
inline constexpr NoId kNone;

/// Number of an object of the kind `Tag`. A default-constructed Id is kNone, unless the kind has a natural
/// zero (the main graph, the partition equal everywhere), which its tag declares: `static constexpr
/// std::uint32_t kDefault = 0;`.
template <class Tag>
struct Id {
  std::uint32_t value = initial();

  constexpr Id() = default;
  constexpr Id(NoId) : value(kNone) {}  // NOLINT: kNone is an Id of each kind
  constexpr explicit Id(std::integral auto number) : value(static_cast<std::uint32_t>(number)) {}

  constexpr std::size_t index() const { return value; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;
  friend constexpr std::uint32_t format_as(Id id) { return id.value; }  ///< Formatting hook of fmt.

 private:
  static constexpr std::uint32_t initial() {
    if constexpr (requires { Tag::kDefault; }) {
      return Tag::kDefault;
    } else {
      return kNone;
    }
  }
};

/// Range of the ids 0 to count - 1: for (const OpId id : ids<OpId>(ir.num_ops())).
template <class I>
class Ids {
 public:
  struct Iterator {
    I id;
    constexpr I operator*() const { return id; }
    constexpr Iterator& operator++() {
      ++id.value;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;
  };

  constexpr explicit Ids(std::size_t count) : count_(count) {}
  constexpr Iterator begin() const { return {I(0)}; }
  constexpr Iterator end() const { return {I(count_)}; }

 private:
  std::size_t count_;
};
template <class I>
constexpr Ids<I> ids(std::size_t count) {
  return Ids<I>(count);
}

/// Array with one element for each id of a kind, indexed by Id alone.
template <class I, class T, class Container = std::vector<T>>
class IdVector : public Container {
 public:
  using Container::Container;
  decltype(auto) operator[](I id) { return Container::operator[](id.index()); }
  decltype(auto) operator[](I id) const { return Container::operator[](id.index()); }
  /// Id of the element that is appended next.
  I next() const { return I(Container::size()); }
  Ids<I> ids() const { return popsr::ids<I>(Container::size()); }
};

}  // namespace popsr

template <class Tag>
struct std::hash<popsr::Id<Tag>> {
  std::size_t operator()(popsr::Id<Tag> id) const noexcept { return std::hash<std::uint32_t>()(id.value); }
};
