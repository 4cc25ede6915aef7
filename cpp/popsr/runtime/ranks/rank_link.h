// Agreement of the ranks of a session: that they make the same calls with equal arguments, and which of them
// failed first.
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

/// Something that must be equal on all ranks.
struct RankItem {
  std::string name, value;
};

/// A call that all ranks make at once.
struct RankCall {
  Digest::Value digest = {};  ///< Of its name and its items.
  /// Its name and its items, asked for when digests differ.
  std::function<std::pair<std::string, std::vector<RankItem>>()> text = {};
};

/// The digest of a call with these items.
RankCall call_of(std::string name, std::vector<RankItem> items);

class RankLink {
 public:
  explicit RankLink(std::unique_ptr<Transport> transport);

  std::int64_t ranks() const { return transport_->ranks(); }
  std::int64_t rank() const { return transport_->rank(); }
  RankMap map(std::int64_t replicas) const { return {replicas, ranks(), rank()}; }
  Transport& transport() { return *transport_; }
  /// Of plans that are made from now on.
  ChainTuning& tuning() { return tuning_; }
  std::size_t message_bytes() const { return message_bytes_; }
  void set_message_bytes(std::size_t bytes) { message_bytes_ = bytes; }

  /// Moves values as Transport::exchange does, long ones in several messages. Returns what this rank moved.
  Traffic exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming);

  /// Bytes that a rank may give the others with its word; the same on all ranks.
  std::size_t payload_capacity() const { return max_payload(ranks()); }
  /// Of the next agree().
  std::span<std::byte> payload();
  /// The bytes that a rank offered in the last agree().
  std::span<const std::byte> payload_of(std::int64_t rank) const;
  /// Returns on all ranks when all of them make that call. `mine`: this rank cannot make it. The result: the
  /// failure that counts, if there is one. Throws RankError on all ranks when calls differ.
  std::optional<RankFailure> agree(const RankCall& call, const RankFailure* mine = nullptr);
  /// The same; throws the failure that counts: as `mine` itself on its own rank.
  void agree_or_raise(const RankCall& call, const std::exception_ptr& mine = nullptr);
  /// True after agree() found a failure or a difference: all ranks know that their call ends with an error.
  bool is_failure_shared() const { return is_failure_shared_; }
  void set_failure_shared(bool is_failure_shared) { is_failure_shared_ = is_failure_shared; }
  /// That failure; of a difference, which is not one rank's own, nothing of rank 0.
  const RankFailure& shared_failure() const { return shared_failure_; }
  /// True on all ranks if it is on all ranks, element by element.
  std::vector<std::uint8_t> all_of(std::vector<std::uint8_t> mine);

 private:
  std::vector<std::string> gather_texts(const std::string& mine);
  std::optional<RankFailure> first_failure(const RankFailure* mine);
  [[noreturn]] void raise_different(const RankCall& call);

  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> outgoing_ = {},
                         incoming_ = {};  ///< This rank's word with its offer; those of all ranks.
  bool is_failure_shared_ = false;
  RankFailure shared_failure_ = {};
  ChainTuning tuning_;
  std::size_t message_bytes_ = kMessageBytes;
};

}  // namespace popsr
