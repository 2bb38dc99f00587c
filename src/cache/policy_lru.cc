// SPDX-License-Identifier: Apache-2.0
#include "cache/policy_lru.h"

#include <vector>

#include "base/check.h"

namespace fermata {
namespace {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(bool superseded_first) : superseded_first_(superseded_first) {}

  void OnInserted(BlockId block) override {
    if (Raw(block) >= nodes_.size()) nodes_.resize(Raw(block) + 1);
    nodes_[Raw(block)] = Node{};
  }
  void OnRemoved(BlockId block) override {
    Leave(block);
    nodes_[Raw(block)] = Node{};
  }
  void OnBecameLeaf(BlockId block) override {
    nodes_[Raw(block)].leaf = true;
    Enter(block);
  }
  void OnNoLongerLeaf(BlockId block) override {
    Leave(block);
    nodes_[Raw(block)].leaf = false;
  }
  void OnPinned(BlockId block) override {
    Leave(block);
    nodes_[Raw(block)].unpinned = false;
  }
  void OnUnpinned(BlockId block) override {
    nodes_[Raw(block)].unpinned = true;
    nodes_[Raw(block)].stamp = ++now_;
    Enter(block);
  }
  void OnTouched(BlockId block, SessionId) override {
    Leave(block);
    nodes_[Raw(block)].stamp = ++now_;
    Enter(block);
  }
  void OnSuperseded(BlockId block) override {
    SetQueue(block, superseded_first_ ? kSuperseded : kOrdinary);
  }
  void OnRevived(BlockId block) override { SetQueue(block, kOrdinary); }

  Victim NextVictim() override {
    if (queues_[kSuperseded].oldest != BlockId::kNone)
      return {queues_[kSuperseded].oldest, VictimReason::kSuperseded};
    return {queues_[kOrdinary].oldest, VictimReason::kRecency};
  }

 private:
  enum QueueIndex : uint8_t { kOrdinary = 0, kSuperseded = 1 };

  struct Node {
    BlockId older = BlockId::kNone;
    BlockId newer = BlockId::kNone;
    uint64_t stamp = 0;
    QueueIndex queue = kOrdinary;
    bool leaf = false;
    bool unpinned = false;
    bool queued = false;
  };
  struct Queue {
    BlockId oldest = BlockId::kNone;
    BlockId newest = BlockId::kNone;
  };

  Node& node(BlockId block) { return nodes_[Raw(block)]; }

  void SetQueue(BlockId block, QueueIndex queue) {
    Leave(block);
    node(block).queue = queue;
    Enter(block);
  }

  // Into the queue at the place of its stamp, if it is a candidate.
  void Enter(BlockId block) {
    Node& entering = node(block);
    if (!entering.leaf || !entering.unpinned || entering.queued) return;
    Queue& queue = queues_[entering.queue];
    BlockId older = queue.newest;  // the one it goes behind
    if (older != BlockId::kNone && node(older).stamp > entering.stamp) {
      BlockId newer = queue.oldest;
      older = BlockId::kNone;
      while (node(newer).stamp < entering.stamp) {
        older = newer;
        newer = node(newer).newer;
      }
    }
    entering.older = older;
    entering.newer = older == BlockId::kNone ? queue.oldest : node(older).newer;
    (entering.older == BlockId::kNone ? queue.oldest : node(entering.older).newer) = block;
    (entering.newer == BlockId::kNone ? queue.newest : node(entering.newer).older) = block;
    entering.queued = true;
  }

  void Leave(BlockId block) {
    Node& leaving = node(block);
    if (!leaving.queued) return;
    Queue& queue = queues_[leaving.queue];
    (leaving.older == BlockId::kNone ? queue.oldest : node(leaving.older).newer) = leaving.newer;
    (leaving.newer == BlockId::kNone ? queue.newest : node(leaving.newer).older) = leaving.older;
    leaving.older = leaving.newer = BlockId::kNone;
    leaving.queued = false;
  }

  const bool superseded_first_;
  uint64_t now_ = 0;
  Queue queues_[2];
  std::vector<Node> nodes_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy(bool superseded_first) {
  return std::make_unique<LruPolicy>(superseded_first);
}

}  // namespace fermata
