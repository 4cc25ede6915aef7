// Ids: a type for each kind, so that swapped arguments do not compile.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <concepts>
#include <deque>
#include <tuple>
#include <unordered_set>

#include "popsr/analysis/explain/dataflow.h"
#include "popsr/analysis/fact_store.h"
#include "popsr/analysis/memory/memory_parts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/ir.h"

namespace popsr {
namespace {

using Kinds = std::tuple<TensorId, OpId, GraphId, StreamId, RemoteId, LocationId, PartitionId, PartId,
                         ContextId, FrameId, NarrowingId>;

template <class A, class B>
constexpr bool interchangeable() {
  return std::convertible_to<A, B> || std::constructible_from<B, A> || std::equality_comparable_with<A, B>;
}

/// True if no Id of one kind is accepted, constructed or compared where another kind is expected.
template <class A, class... All>
constexpr bool stands_alone(std::type_identity<std::tuple<All...>>) {
  return ((std::same_as<A, All> || !interchangeable<A, All>()) && ...);
}
template <class... All>
constexpr bool are_distinct(std::type_identity<std::tuple<All...>> kinds) {
  return (stands_alone<All>(kinds) && ...);
}
static_assert(are_distinct(std::type_identity<Kinds>()));

template <class I>
concept PlainId =
    sizeof(I) == sizeof(std::uint32_t) && std::is_trivially_copyable_v<I>&& std::totally_ordered<I> &&
    !std::convertible_to<std::uint32_t, I> &&
    !std::convertible_to<I, std::uint32_t> && std::convertible_to<NoId, I>;
template <class... All>
constexpr bool are_plain(std::type_identity<std::tuple<All...>>) {
  return (PlainId<All> && ...);
}
static_assert(are_plain(std::type_identity<Kinds>()));

template <class Array, class Index>
concept IndexedBy = requires(Array array, Index index) {
  array[index];
};
static_assert(IndexedBy<IdVector<TensorId, int>, TensorId>);
static_assert(!IndexedBy<IdVector<TensorId, int>, OpId>);
static_assert(!IndexedBy<IdVector<TensorId, int>, std::size_t>);

TEST_CASE("an Id made of nothing is absent, or the natural zero of its kind") {
  CHECK(TensorId() == kNone);
  CHECK(OpId() == kNone);
  CHECK(StreamId() == kNone);
  CHECK(RemoteId() == kNone);
  CHECK(GraphId() == kMainGraph);
  CHECK(LocationId() == kUnknownLocation);
  CHECK(PartitionId() == PartitionTable(4).top());
  CHECK(PartId() == kWholePart);
  CHECK(FrameId() == kMainFrame);
  CHECK(NarrowingId() == kNoNarrowing);
  CHECK(ContextId(kNone) == kNone);
  CHECK(ContextId() != kNone);
}

TEST_CASE("ids are ordered, hashed and printed as their numbers") {
  CHECK(TensorId(1) < TensorId(2));
  CHECK(TensorId(2) < TensorId(kNone));
  CHECK(std::unordered_set<OpId>{OpId(3), OpId(3), OpId(4)}.size() == 2);
  CHECK(fmt::format("{} {}", OpId(7), TensorId(kNone)) == "7 4294967295");
}

TEST_CASE("an IdVector is numbered from 0 on, in any container") {
  IdVector<OpId, int, std::deque<int>> values{5, 6};
  CHECK(values.next() == OpId(2));
  values.push_back(7);
  int sum = 0;
  for (const OpId id : values.ids()) sum += values[id] * static_cast<int>(id.value);
  CHECK(sum == 6 + 2 * 7);
}

}  // namespace
}  // namespace popsr
