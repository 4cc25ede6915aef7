#include "popsr/runtime/ranks/rank_link.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "popsr/base/error.h"

namespace popsr {
namespace {

constexpr std::uint64_t kNoFailure = std::numeric_limits<std::uint64_t>::max();

/// A rank's word about a call.
struct AgreeMessage {
  Digest::Value digest = {};
  std::uint64_t failed_at = kNoFailure;
};

/// Strings one after the other, each with its length.
std::string packed(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    const std::uint64_t size = part.size();
    text.append(reinterpret_cast<const char*>(&size), sizeof(size));
    text += part;
  }
  return text;
}

std::vector<std::string> unpacked(std::string_view text) {
  std::vector<std::string> parts;
  while (text.size() >= sizeof(std::uint64_t)) {
    std::uint64_t size = 0;
    std::memcpy(&size, text.data(), sizeof(size));
    text.remove_prefix(sizeof(size));
    parts.emplace_back(text.substr(0, size));
    text.remove_prefix(parts.back().size());
  }
  return parts;
}

/// The first line in which two values differ, cut to a length that errors have room for.
std::pair<std::string, std::string> difference(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::size_t end_a = std::min(a.find('\n'), a.size()), end_b = std::min(b.find('\n'), b.size());
    if (a.substr(0, end_a) != b.substr(0, end_b)) break;
    a.remove_prefix(std::min(end_a + 1, a.size()));
    b.remove_prefix(std::min(end_b + 1, b.size()));
  }
  constexpr std::size_t kShown = 120;
  const auto shown = [](std::string_view text) {
    const std::string line(text.substr(0, text.find('\n')));
    if (line.empty()) return std::string("nothing");
    return line.size() <= kShown ? line : line.substr(0, kShown) + "...";
  };
  return {shown(a), shown(b)};
}

/// Values as messages of at most `most` bytes. Empty ones need none.
template <class Message>
std::vector<Message> in_messages(std::span<const Message> values, std::size_t most) {
  std::vector<Message> messages;
  for (const Message& value : values) {
    for (std::size_t begin = 0; begin < value.size; begin += most) {
      messages.push_back({value.rank, value.data + begin, std::min(most, value.size - begin)});
    }
  }
  return messages;
}

template <class Message>
std::uint64_t bytes_in(const std::vector<Message>& messages) {
  std::uint64_t bytes = 0;
  for (const Message& each : messages) bytes += each.size;
  return bytes;
}

}  // namespace

RankCall call_of(std::string name, std::vector<RankItem> items) {
  Digest digest;
  digest.add(std::string_view(name));
  for (const RankItem& item : items) {
    digest.add(std::string_view(item.name)).add(std::string_view(item.value));
  }
  return {digest.value(), [call = std::pair(std::move(name), std::move(items))] { return call; }};
}

RankLink::RankLink(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  outgoing_.resize(sizeof(AgreeMessage) + payload_capacity());
  incoming_.resize(outgoing_.size() * static_cast<std::size_t>(ranks()));
}

std::span<std::byte> RankLink::payload() { return std::span(outgoing_).subspan(sizeof(AgreeMessage)); }

std::span<const std::byte> RankLink::payload_of(std::int64_t rank) const {
  return std::span(incoming_).subspan(
      static_cast<std::size_t>(rank) * outgoing_.size() + sizeof(AgreeMessage), payload_capacity());
}

Traffic RankLink::exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming) {
  const std::vector<OutgoingBytes> sends = in_messages(outgoing, message_bytes_);
  const std::vector<IncomingBytes> receives = in_messages(incoming, message_bytes_);
  transport_->exchange(sends, receives);
  return {bytes_in(sends), sends.size(), bytes_in(receives), receives.size()};
}

std::optional<RankFailure> RankLink::agree(const RankCall& call, const RankFailure* mine) {
  const AgreeMessage message{call.digest, mine != nullptr ? mine->at : kNoFailure};
  std::memcpy(outgoing_.data(), &message, sizeof(message));
  transport_->gather(outgoing_, incoming_.data());
  std::vector<AgreeMessage> all(static_cast<std::size_t>(ranks()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::memcpy(&all[rank], incoming_.data() + rank * outgoing_.size(), sizeof(message));
  }
  const auto failed = [](const AgreeMessage& each) { return each.failed_at != kNoFailure; };
  is_failure_shared_ = true;
  shared_failure_ = {};
  if (std::ranges::any_of(all, failed)) {
    std::optional<RankFailure> first = first_failure(mine);
    if (first) shared_failure_ = *first;
    return first;
  }
  const auto differs = [&](const AgreeMessage& each) { return each.digest != all.front().digest; };
  if (std::ranges::any_of(all, differs)) raise_different(call);
  is_failure_shared_ = false;
  return std::nullopt;
}

void RankLink::agree_or_raise(const RankCall& call, const std::exception_ptr& mine) {
  std::optional<RankFailure> failure;
  if (mine) failure = failure_of(mine);
  const std::optional<RankFailure> first = agree(call, failure ? &*failure : nullptr);
  if (!first) return;
  if (mine && first->rank == rank()) std::rethrow_exception(mine);
  raise_failure(*first);
}

std::vector<std::uint8_t> RankLink::all_of(std::vector<std::uint8_t> mine) {
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(ranks()));
  transport_->gather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint8_t& flag = mine[i % mine.size()];
    flag = std::min(flag, all[i]);
  }
  return mine;
}

std::vector<std::string> RankLink::gather_texts(const std::string& mine) {
  const auto count = static_cast<std::size_t>(ranks());
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(count);
  transport_->gather(std::as_bytes(std::span(&size, 1)), reinterpret_cast<std::byte*>(sizes.data()));
  const std::uint64_t room = std::ranges::max(sizes);
  std::string padded = mine;
  padded.resize(room);
  std::string all(room * count, '\0');
  if (room > 0)
    transport_->gather(std::as_bytes(std::span(padded)), reinterpret_cast<std::byte*>(all.data()));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < count; ++r) texts.push_back(all.substr(r * room, sizes[r]));
  return texts;
}

std::optional<RankFailure> RankLink::first_failure(const RankFailure* mine) {
  const auto number = [](auto value) { return std::to_string(value); };
  const std::string text =
      mine == nullptr ? "" : packed({number(mine->at), mine->kind, mine->text, number(mine->op.value)});
  std::optional<RankFailure> first;
  std::int64_t rank = 0;
  for (const std::string& each : gather_texts(text)) {
    const std::vector<std::string> parts = unpacked(each);
    if (parts.size() == 4) {
      const std::uint64_t at = std::stoull(parts[0]);
      if (!first || at < first->at) first = {rank, at, parts[1], parts[2], OpId(std::stoul(parts[3]))};
    }
    ++rank;
  }
  return first;
}

void RankLink::raise_different(const RankCall& call) {
  const auto [name, items] = call.text();
  std::vector<std::string> mine{name};
  for (const RankItem& item : items) mine.insert(mine.end(), {item.name, item.value});
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : gather_texts(packed(mine))) all.push_back(unpacked(text));
  for (std::size_t part = 0;; ++part) {
    for (std::size_t r = 1; r < all.size(); ++r) {
      const auto at = [&](std::size_t rank) { return part < all[rank].size() ? all[rank][part] : ""; };
      if (at(0) == at(r)) continue;
      const auto [a, b] = difference(at(0), at(r));
      if (part == 0) {
        raise<RankError>(
            "session: ranks make other calls, got {} on rank 0 and {} on rank {}, expected the "
            "same calls in the same order on all ranks",
            a, b, r);
      }
      const std::string what = part % 2 == 1 ? "what is given" : all[0][part - 1];
      raise<RankError>(
          "{}: ranks differ in {}, got {} on rank 0 and {} on rank {}, expected the same on all "
          "ranks",
          name, what, a, b, r);
    }
    if (std::ranges::all_of(all, [&](const auto& parts) { return part >= parts.size(); })) break;
  }
  raise<RankError>("{}: ranks differ, got other digests of equal texts, expected the same on all ranks",
                   name);
}

}  // namespace popsr
