// Agreement of the ranks of a session: whether they make the same calls with equal arguments, and which of
// them failed first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "popsr/base/digest.h"
#include "popsr/exec/transport.h"
#include "popsr/replica/rank_map.h"
#include "popsr/runtime/ranks/chain_tuning.h"
#include "popsr/runtime/ranks/rank_failure.h"
#include "popsr/runtime/ranks/traffic.h"

namespace popsr {

/// A named value that must be equal on all ranks.
struct RankItem {
  std::string name, value;
};

/// A call that all ranks make at once.
struct RankCall {
  Digest::Value digest = {};  ///< Digest of the call's name and items.
  /// Name and items of the call; evaluated only when digests differ, for the error.
  std::function<std::pair<std::string, std::vector<RankItem>>()> text = {};
};

/// Makes the call with its digest from a name and items.
RankCall call_of(std::string name, std::vector<RankItem> items);

class RankLink {
 public:
  explicit RankLink(std::unique_ptr<Transport> transport);

  std::int64_t ranks() const { return transport_->ranks(); }
  std::int64_t rank() const { return transport_->rank(); }
  RankMap map(std::int64_t replicas) const { return {replicas, ranks(), rank()}; }
  Transport& transport() { return *transport_; }
  /// Tuning of plans that are compiled from now on.
  ChainTuning& tuning() { return tuning_; }
  std::size_t message_bytes() const { return message_bytes_; }
  void set_message_bytes(std::size_t bytes) { message_bytes_ = bytes; }

  /// Exchanges values as Transport::exchange does, long ones in several messages. Returns the traffic of
  /// this rank.
  Traffic exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming);

  /// Bytes of payload that a rank can send with agree(); equal on all ranks.
  std::size_t payload_capacity() const { return max_payload(ranks()); }
  /// Payload of this rank for the next agree().
  std::span<std::byte> payload();
  /// Payload of a rank in the last agree().
  std::span<const std::byte> payload_of(std::int64_t rank) const;
  /// Waits until all ranks make this call. `mine`: the failure because of which this rank cannot make it,
  /// or null. Returns the failure that counts, if there is one. Throws RankError on all ranks when their
  /// calls differ.
  std::optional<RankFailure> agree(const RankCall& call, const RankFailure* mine = nullptr);
  /// Calls agree() and throws the failure that counts; on the rank that failed, rethrows `mine` itself.
  void agree_or_raise(const RankCall& call, const std::exception_ptr& mine = nullptr);
  /// True after agree() found a failure or a difference: all ranks know that their call ends with an error.
  bool is_failure_shared() const { return is_failure_shared_; }
  void set_failure_shared(bool is_failure_shared) { is_failure_shared_ = is_failure_shared; }
  /// Failure that all ranks know of; after a difference of calls, which no single rank caused, an empty
  /// failure of rank 0.
  const RankFailure& shared_failure() const { return shared_failure_; }
  /// Element-wise logical AND over all ranks. Collective.
  std::vector<std::uint8_t> all_of(std::vector<std::uint8_t> mine);

 private:
  std::vector<std::string> gather_texts(const std::string& mine);
  std::optional<RankFailure> first_failure(const RankFailure* mine);
  [[noreturn]] void raise_different(const RankCall& call);

  std::unique_ptr<Transport> transport_;
  /// Messages of agree(), with payloads: the one of this rank, and the ones of all ranks.
  std::vector<std::byte> outgoing_ = {}, incoming_ = {};
  bool is_failure_shared_ = false;
  RankFailure shared_failure_ = {};
  ChainTuning tuning_;
  std::size_t message_bytes_ = kMessageBytes;
};

}  // namespace popsr
