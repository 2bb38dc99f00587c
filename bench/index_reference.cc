// SPDX-License-Identifier: Apache-2.0
#include "bench/index_reference.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace fermata::bench {

// --- radix tree with a heap for each eviction ---

RefRadixTree::Node* RefRadixTree::Add(Node* parent, uint64_t key, uint64_t blocks,
                                      uint64_t last_use) {
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->key = key;
  node->blocks = blocks;
  node->last_use = last_use;
  Node* const raw = node.get();
  FERMATA_CHECK(parent->children.emplace(key, std::move(node)).second);
  return raw;
}

uint64_t RefRadixTree::Evict(uint64_t blocks, std::vector<uint64_t>* keys) {
  std::vector<Node*> leaves;
  std::vector<Node*> todo = {&root_};
  while (!todo.empty()) {
    Node* const node = todo.back();
    todo.pop_back();
    ++visits_;
    if (node->children.empty() && node != &root_) leaves.push_back(node);
    for (const auto& [key, child] : node->children) todo.push_back(child.get());
  }
  const auto younger = [](const Node* a, const Node* b) { return a->last_use > b->last_use; };
  std::make_heap(leaves.begin(), leaves.end(), younger);
  uint64_t freed = 0;
  while (freed < blocks && !leaves.empty()) {
    std::pop_heap(leaves.begin(), leaves.end(), younger);
    Node* const victim = leaves.back();
    leaves.pop_back();
    freed += victim->blocks;
    if (keys != nullptr) keys->push_back(victim->key);
    Node* const parent = victim->parent;
    parent->children.erase(victim->key);
    if (!parent->children.empty() || parent == &root_) continue;
    leaves.push_back(parent);
    std::push_heap(leaves.begin(), leaves.end(), younger);
  }
  victims_ += freed;
  return freed;
}

// --- pool of blocks ---

RefBlockPool::RefBlockPool(uint32_t blocks) : blocks_(blocks) {
  idle_.older = idle_.newer = &idle_;
  for (uint32_t i = 0; i < blocks; ++i) {
    blocks_[i].id = i;
    LinkNewest(&blocks_[i]);
  }
}

void RefBlockPool::Unlink(Block* block) {
  block->older->newer = block->newer;
  block->newer->older = block->older;
  block->older = block->newer = nullptr;
}

void RefBlockPool::LinkNewest(Block* block) {
  block->older = idle_.older;
  block->newer = &idle_;
  block->older->newer = block;
  idle_.older = block;
}

RefBlockPool::Block* RefBlockPool::Find(const Hash128& hash) const {
  const auto it = named_.find(hash);
  return it == named_.end() ? nullptr : it->second;
}

RefBlockPool::Block* RefBlockPool::Take() {
  Block* const block = idle_.newer;
  if (block == &idle_) return nullptr;
  if (block->named) named_.erase(block->hash);
  block->named = false;
  Hold(block);
  return block;
}

void RefBlockPool::Publish(Block* block, const Hash128& hash) {
  block->hash = hash;
  block->named = named_.emplace(hash, block).second;  // the first of a name keeps it
}

void RefBlockPool::Hold(Block* block) {
  if (block->refs++ == 0) Unlink(block);
}

void RefBlockPool::Release(Block* block) {
  FERMATA_CHECK(block->refs > 0);
  if (--block->refs == 0) LinkNewest(block);
}

size_t RefFindPrefix(const RefBlockPool& pool, std::span<const Hash128> names) {
  size_t found = 0;
  while (found < names.size() && pool.Find(names[found]) != nullptr) ++found;
  return found;
}

// --- chains ---

RefShaChain::RefShaChain()
    : context_(EVP_MD_CTX_new()), method_(EVP_MD_fetch(nullptr, "SHA256", nullptr)) {
  FERMATA_CHECK(context_ != nullptr && method_ != nullptr);
}

RefShaChain::~RefShaChain() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
  EVP_MD_free(static_cast<EVP_MD*>(method_));
}

RefShaChain::Digest RefShaChain::Chain(std::span<const uint32_t> tokens,
                                       std::vector<Hash128>* names) {
  EVP_MD_CTX* const context = static_cast<EVP_MD_CTX*>(context_);
  const EVP_MD* const method = static_cast<const EVP_MD*>(method_);
  Digest digest{};
  for (size_t at = 0; at + kIndexBlockTokens <= tokens.size(); at += kIndexBlockTokens) {
    bool ok = EVP_DigestInit_ex(context, method, nullptr) == 1;
    ok = ok && EVP_DigestUpdate(context, digest.data(), digest.size()) == 1;
    ok = ok &&
         EVP_DigestUpdate(context, tokens.data() + at, kIndexBlockTokens * sizeof(uint32_t)) == 1;
    ok = ok &&
         EVP_DigestFinal_ex(context, reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1;
    FERMATA_CHECK(ok);
    if (names == nullptr) continue;
    Hash128 name;
    std::memcpy(&name, digest.data(), sizeof(name));
    names->push_back(name);
  }
  return digest;
}

Hash128 RefXxhChain(std::span<const uint32_t> tokens) {
  Hash128 value;
  std::array<std::byte, sizeof(Hash128) + kIndexBlockTokens * sizeof(uint32_t)> message;
  for (size_t at = 0; at + kIndexBlockTokens <= tokens.size(); at += kIndexBlockTokens) {
    std::memcpy(message.data(), &value, sizeof(value));
    std::memcpy(message.data() + sizeof(value), tokens.data() + at,
                kIndexBlockTokens * sizeof(uint32_t));
    value = ContentHash(message);
  }
  return value;
}

}  // namespace fermata::bench
