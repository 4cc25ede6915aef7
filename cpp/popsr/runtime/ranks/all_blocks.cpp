#include "popsr/runtime/ranks/all_blocks.h"

namespace popsr {

AllBlocks::AllBlocks(const Ir& ir, const Plan& plan, BufferId buffer, RankLink* link)
    : plan_(plan), buffer_(buffer) {
  if (link == nullptr) return;
  const SeenReplicas all(static_cast<std::size_t>(ir.replication()), 1);
  receive(ir, *link, std::vector<SeenReplicas>(static_cast<std::size_t>(link->ranks()), all));
}

AllBlocks::AllBlocks(const Ir& ir, const Plan& plan, BufferId buffer, RankLink* link,
                     const std::vector<SeenReplicas>& seen)
    : plan_(plan), buffer_(buffer) {
  if (link != nullptr) receive(ir, *link, seen);
}

void AllBlocks::receive(const Ir& ir, RankLink& link, const std::vector<SeenReplicas>& seen) {
  const PartitionId storage = plan_.program().buffers[buffer_].storage;
  const Placement& placement = plan_.memory().placements[buffer_];
  const Halo halo = halo_of(ir.partitions(), plan_.blocks(), storage, seen);
  const auto own = static_cast<std::uint32_t>(plan_.blocks().num_blocks(storage));
  received_.resize(static_cast<std::size_t>(halo.num_received) * placement.nbytes);
  std::vector<OutgoingBytes> outgoing;
  std::vector<IncomingBytes> incoming;
  for (const Halo::Message& each : halo.outgoing) {
    outgoing.push_back({each.rank, placement.base + each.block * placement.nbytes, placement.nbytes});
  }
  for (const Halo::Message& each : halo.incoming) {
    incoming.push_back(
        {each.rank, received_.data() + (each.block - own) * placement.nbytes, placement.nbytes});
  }
  if (placement.nbytes > 0) link.exchange(outgoing, incoming);
  for (const std::uint32_t label : halo.labels) {
    if (label == kAbsentBlock) {
      blocks_.push_back(nullptr);
    } else if (label < own) {
      blocks_.push_back(placement.base + label * placement.nbytes);
    } else {
      blocks_.push_back(received_.data() + (label - own) * placement.nbytes);
    }
  }
}

}  // namespace popsr
