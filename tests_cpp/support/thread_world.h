// Ranks as threads of one process: a transport through shared memory.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/transport.h"

namespace popsr::test {

class ThreadWorld {
 public:
  explicit ThreadWorld(std::int64_t ranks) : ranks_(ranks), given_(static_cast<std::size_t>(ranks)) {}

  std::unique_ptr<Transport> transport(std::int64_t rank) { return std::make_unique<Rank>(*this, rank); }

  /// Calls body(rank) on a thread for each rank.
  void run(const std::function<void(std::int64_t)>& body) const {
    std::vector<std::jthread> threads;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  }

  std::int64_t messages = 0;  ///< Messages that all ranks sent.

 private:
  using Bytes = std::vector<std::byte>;

  class Rank final : public Transport {
   public:
    Rank(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {}
    std::int64_t ranks() const override { return world_.ranks_; }
    std::int64_t rank() const override { return rank_; }
    void exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming) override {
      for (const OutgoingBytes& each : outgoing) {
        world_.send({rank_, each.rank}, {each.data, each.data + each.size});
      }
      for (const IncomingBytes& each : incoming) {
        const Bytes got = world_.receive({each.rank, rank_});
        POPSR_CHECK(got.size() == each.size);
        std::memcpy(each.data, got.data(), got.size());
      }
    }
    void gather(std::span<const std::byte> mine, std::byte* all) override { world_.gather(rank_, mine, all); }

   private:
    ThreadWorld& world_;
    std::int64_t rank_;
  };

  void send(std::pair<std::int64_t, std::int64_t> way, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    ++messages;
    mail_[way].push_back(std::move(bytes));
    changed_.notify_all();
  }

  Bytes receive(std::pair<std::int64_t, std::int64_t> way) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !mail_[way].empty(); });
    Bytes bytes = std::move(mail_[way].front());
    mail_[way].pop_front();
    return bytes;
  }

  void gather(std::int64_t rank, std::span<const std::byte> mine, std::byte* all) {
    std::unique_lock lock(mutex_);
    given_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    meet(lock);
    for (const Bytes& each : given_) {
      POPSR_CHECK(each.size() == mine.size());
      std::memcpy(all, each.data(), each.size());
      all += each.size();
    }
    meet(lock);
  }

  /// Returns when all ranks have come here.
  void meet(std::unique_lock<std::mutex>& lock) {
    const std::int64_t turn = turn_;
    if (++waiting_ == ranks_) {
      waiting_ = 0;
      ++turn_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return turn_ != turn; });
  }

  std::int64_t ranks_, waiting_ = 0, turn_ = 0;
  std::vector<Bytes> given_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::deque<Bytes>> mail_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace popsr::test
