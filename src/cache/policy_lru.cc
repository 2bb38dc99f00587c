// SPDX-License-Identifier: Apache-2.0
#include "cache/policy_lru.h"

#include <absl/container/btree_set.h>

#include <utility>

#include "base/segmented_array.h"

namespace fermata {
namespace {

// Candidates by the time at which they were let go. Those that come at either end of the order
// (what was let go just now; the parent of what was just evicted) stand in a list; those that come
// into the middle (the parent of a branch that was dropped, or whose tail was superseded) in a
// tree.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(bool superseded_first) : superseded_first_(superseded_first) {}

  void OnInserted(RunId run) override {
    nodes_.Grow(Raw(run) + size_t{1});
    node(run) = Fresh(++now_);
  }
  void OnRemoved(RunId run) override {
    Leave(run);
    node(run) = Node{};
  }
  void OnBecameLeaf(RunId run) override {
    node(run).leaf = true;
    Enter(run);
  }
  void OnNoLongerLeaf(RunId run) override {
    Leave(run);
    node(run).leaf = false;
  }
  void OnPinned(RunId run) override {
    Leave(run);
    node(run).unpinned = false;
  }
  void OnUnpinned(RunId run) override {
    node(run).unpinned = true;
    Enter(run);
  }
  void OnTouched(RunId run, SessionId) override {
    Leave(run);
    node(run).stamp = ++now_;
    Enter(run);
  }
  void OnSplit(RunId run, RunId head) override {
    nodes_.Grow(Raw(head) + size_t{1});
    node(head) = Fresh(node(run).stamp);
    node(head).queue = node(run).queue;
  }
  void OnSuperseded(RunId run) override {
    SetQueue(run, superseded_first_ ? kSuperseded : kOrdinary);
  }
  void OnRevived(RunId run) override { SetQueue(run, kOrdinary); }

  RunId After(RunId run) const override {
    const Node& at = nodes_[Raw(run)];
    if (at.standing != Standing::kInList) return RunId::kNone;
    if (at.newer != RunId::kNone) __builtin_prefetch(&nodes_[Raw(at.newer)]);
    return at.newer;
  }
  Victim NextVictim() override {
    const RunId superseded = Oldest(queues_[kSuperseded]);
    if (superseded != RunId::kNone) return {superseded, VictimReason::kSuperseded};
    return {Oldest(queues_[kOrdinary]), VictimReason::kRecency};
  }

 private:
  enum QueueIndex : uint8_t { kOrdinary = 0, kSuperseded = 1 };
  enum class Standing : uint8_t { kNowhere, kInList, kInTree };

  struct Node {
    RunId older;
    RunId newer;
    uint64_t stamp;
    QueueIndex queue;
    bool leaf;
    bool unpinned;
    Standing standing;
  };
  struct Queue {
    RunId oldest = RunId::kNone;  // of the list
    RunId newest = RunId::kNone;
    absl::btree_set<std::pair<uint64_t, RunId>> tree;  // by stamp
  };

  static Node Fresh(uint64_t stamp) {
    Node node{};
    node.older = node.newer = RunId::kNone;
    node.stamp = stamp;
    return node;
  }
  Node& node(RunId run) { return nodes_[Raw(run)]; }

  void SetQueue(RunId run, QueueIndex queue) {
    Leave(run);
    node(run).queue = queue;
    Enter(run);
  }

  RunId Oldest(const Queue& queue) const {
    if (queue.tree.empty()) return queue.oldest;
    const auto& [stamp, run] = *queue.tree.begin();
    return queue.oldest != RunId::kNone && nodes_[Raw(queue.oldest)].stamp < stamp ? queue.oldest
                                                                                   : run;
  }

  // Into the queue at the place of its stamp, if it is a candidate.
  void Enter(RunId run) {
    Node& entering = node(run);
    if (!entering.leaf || !entering.unpinned || entering.standing != Standing::kNowhere) return;
    Queue& queue = queues_[entering.queue];
    entering.standing = Standing::kInList;
    if (queue.oldest == RunId::kNone) {
      queue.oldest = queue.newest = run;
    } else if (node(queue.newest).stamp < entering.stamp) {
      entering.older = queue.newest;
      node(queue.newest).newer = run;
      queue.newest = run;
    } else if (entering.stamp < node(queue.oldest).stamp) {
      entering.newer = queue.oldest;
      node(queue.oldest).older = run;
      queue.oldest = run;
    } else {
      entering.standing = Standing::kInTree;
      queue.tree.emplace(entering.stamp, run);
    }
  }

  void Leave(RunId run) {
    Node& leaving = node(run);
    Queue& queue = queues_[leaving.queue];
    if (leaving.standing == Standing::kInTree) {
      queue.tree.erase({leaving.stamp, run});
    } else if (leaving.standing == Standing::kInList) {
      (leaving.older == RunId::kNone ? queue.oldest : node(leaving.older).newer) = leaving.newer;
      (leaving.newer == RunId::kNone ? queue.newest : node(leaving.newer).older) = leaving.older;
      leaving.older = leaving.newer = RunId::kNone;
    }
    leaving.standing = Standing::kNowhere;
  }

  const bool superseded_first_;
  uint64_t now_ = 0;
  Queue queues_[2];
  SegmentedArray<Node> nodes_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy(bool superseded_first) {
  return std::make_unique<LruPolicy>(superseded_first);
}

}  // namespace fermata
