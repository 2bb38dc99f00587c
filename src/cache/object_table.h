// SPDX-License-Identifier: Apache-2.0
//
// ObjectTable: objects by an id that says whether it is still theirs. An id is a slot index and the
// slot's generation, so an id of an object that is gone never finds its successor (until one slot
// has been reused 2^24 times).
//
// Threads: under the owner's lock. Cost: O(1).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace fermata {

using ObjectId = uint64_t;  // low 24 bits: index; next 24: generation (>= 1). 0: none

template <typename T>
class ObjectTable {
 public:
  // `first_generation` (taken modulo 2^24, never 0) sets the ids of two tables apart.
  explicit ObjectTable(uint32_t capacity, uint32_t first_generation = 1)
      : capacity_(capacity),
        first_generation_((first_generation & 0xffffff) == 0 ? 1 : first_generation & 0xffffff) {}

  bool full() const { return live_ >= capacity_; }
  uint32_t size() const { return live_; }

  // REQUIRES: !full()
  ObjectId Add(std::unique_ptr<T> object) {
    uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
      slots_.back().generation = first_generation_;
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    ++live_;
    return static_cast<uint64_t>(slot.generation) << 24 | index;
  }
  T* Find(ObjectId id) const {
    const uint32_t index = static_cast<uint32_t>(id & 0xffffff);
    const uint64_t generation = id >> 24;  // whole: noise above it makes it nobody's
    if (index >= slots_.size() || slots_[index].generation != generation) return nullptr;
    return slots_[index].object.get();
  }
  std::unique_ptr<T> Remove(ObjectId id) {
    if (Find(id) == nullptr) return nullptr;
    const uint32_t index = static_cast<uint32_t>(id & 0xffffff);
    Slot& slot = slots_[index];
    slot.generation = slot.generation == 0xffffff ? 1 : slot.generation + 1;
    free_.push_back(index);
    --live_;
    return std::move(slot.object);
  }
  template <typename F>
  void ForEach(F&& f) const {
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].object)
        f(static_cast<uint64_t>(slots_[i].generation) << 24 | i, *slots_[i].object);
    }
  }

 private:
  struct Slot {
    uint32_t generation = 1;
    std::unique_ptr<T> object;
  };
  const uint32_t capacity_;
  const uint32_t first_generation_;
  uint32_t live_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace fermata
