// SPDX-License-Identifier: Apache-2.0
#include "cache/policy_lru.h"

#include <absl/container/btree_set.h>

#include <utility>
#include <vector>

namespace fermata {
namespace {

// Candidates by the time at which they were let go. Those that come at either end of the order
// (what was let go just now; the parent of what was just evicted) stand in a list; those that come
// into the middle (the parent of a branch that was dropped, or whose tail was superseded) in a
// tree.
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
    Leave(block);
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
    const BlockId superseded = Oldest(queues_[kSuperseded]);
    if (superseded != BlockId::kNone) return {superseded, VictimReason::kSuperseded};
    return {Oldest(queues_[kOrdinary]), VictimReason::kRecency};
  }

 private:
  enum QueueIndex : uint8_t { kOrdinary = 0, kSuperseded = 1 };
  enum class Standing : uint8_t { kNowhere, kInList, kInTree };

  struct Node {
    BlockId older = BlockId::kNone;
    BlockId newer = BlockId::kNone;
    uint64_t stamp = 0;
    QueueIndex queue = kOrdinary;
    bool leaf = false;
    bool unpinned = false;
    Standing standing = Standing::kNowhere;
  };
  struct Queue {
    BlockId oldest = BlockId::kNone;  // of the list
    BlockId newest = BlockId::kNone;
    absl::btree_set<std::pair<uint64_t, BlockId>> tree;  // by stamp
  };

  Node& node(BlockId block) { return nodes_[Raw(block)]; }

  void SetQueue(BlockId block, QueueIndex queue) {
    Leave(block);
    node(block).queue = queue;
    Enter(block);
  }

  BlockId Oldest(const Queue& queue) const {
    if (queue.tree.empty()) return queue.oldest;
    const auto& [stamp, block] = *queue.tree.begin();
    return queue.oldest != BlockId::kNone && nodes_[Raw(queue.oldest)].stamp < stamp ? queue.oldest
                                                                                     : block;
  }

  // Into the queue at the place of its stamp, if it is a candidate.
  void Enter(BlockId block) {
    Node& entering = node(block);
    if (!entering.leaf || !entering.unpinned || entering.standing != Standing::kNowhere) return;
    Queue& queue = queues_[entering.queue];
    entering.standing = Standing::kInList;
    if (queue.oldest == BlockId::kNone) {
      queue.oldest = queue.newest = block;
    } else if (node(queue.newest).stamp < entering.stamp) {
      entering.older = queue.newest;
      node(queue.newest).newer = block;
      queue.newest = block;
    } else if (entering.stamp < node(queue.oldest).stamp) {
      entering.newer = queue.oldest;
      node(queue.oldest).older = block;
      queue.oldest = block;
    } else {
      entering.standing = Standing::kInTree;
      queue.tree.emplace(entering.stamp, block);
    }
  }

  void Leave(BlockId block) {
    Node& leaving = node(block);
    Queue& queue = queues_[leaving.queue];
    if (leaving.standing == Standing::kInTree) {
      queue.tree.erase({leaving.stamp, block});
    } else if (leaving.standing == Standing::kInList) {
      (leaving.older == BlockId::kNone ? queue.oldest : node(leaving.older).newer) = leaving.newer;
      (leaving.newer == BlockId::kNone ? queue.newest : node(leaving.newer).older) = leaving.older;
      leaving.older = leaving.newer = BlockId::kNone;
    }
    leaving.standing = Standing::kNowhere;
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
