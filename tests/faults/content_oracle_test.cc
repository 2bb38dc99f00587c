// SPDX-License-Identifier: Apache-2.0
//
// The oracle of all other tests is one that can say no: every byte counts, every part of an
// identity counts.
#include "tests/support/content_oracle.h"

#include <gtest/gtest.h>

#include <vector>

namespace fermata_test {
namespace {

constexpr uint64_t kSlotBytes = 1003;  // not a multiple of anything

std::vector<std::byte> Filled(const ContentOracle& oracle, PlaneSpan span) {
  std::vector<std::byte> slot(kSlotBytes);
  span.bytes = slot.data();
  oracle.Fill(span);
  return slot;
}

PlaneSpan SecondBlock() {
  PlaneSpan span;
  span.block = 1;
  span.first_token = 16;
  span.end_token = 32;
  span.slot_bytes = kSlotBytes;
  return span;
}

Tokens Count(uint32_t from, uint32_t count) {
  Tokens tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(from + i);
  return tokens;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ContentOracle, SeesEveryFlippedByte) {
  const ContentOracle oracle({}, {}, Count(0, 32));
  PlaneSpan span = SecondBlock();
  std::vector<std::byte> slot = Filled(oracle, span);
  span.bytes = slot.data();
  EXPECT_EQ(oracle.Check(span), "");
  for (size_t i = 0; i < slot.size(); ++i) {
    slot[i] ^= std::byte{1};
    EXPECT_NE(oracle.Check(span), "") << "byte " << i;
    slot[i] ^= std::byte{1};
  }
}

TEST(ContentOracle, SeesEveryPartOfAnIdentity) {
  const Tokens tokens = Count(0, 32);
  const Extras picture = {{3, "p", 4, 12}};
  const ContentOracle oracle({}, picture, tokens);
  PlaneSpan span = SecondBlock();
  std::vector<std::byte> slot = Filled(oracle, span);
  span.bytes = slot.data();
  ASSERT_EQ(oracle.Check(span), "");

  Tokens other_head = tokens;
  other_head[0] += 1;  // a token of the block before
  EXPECT_NE(ContentOracle({}, picture, other_head).Check(span), "");
  for (const Extras& extras : {Extras{}, Extras{{2, "p", 4, 12}}, Extras{{3, "q", 4, 12}},
                               Extras{{3, "p", 4, 13}}, Extras{{3, "", 4, 12}}}) {
    EXPECT_NE(ContentOracle({}, extras, tokens).Check(span), "");
  }
  std::vector<Fingerprint> others(9);
  others[0].weights = "x";
  others[1].model_config = "x";
  others[2].rope = "x";
  others[3].tenant_salt = "x";
  others[4].kv_dtype = "x";
  others[5].codec = "x";
  others[6].layout_version = 2;
  others[7].rank = 1;
  others[8].ranks = 2;
  for (const Fingerprint& other : others) {
    EXPECT_NE(ContentOracle(other, picture, tokens).Check(span), "");
  }
  for (const bool group : {false, true}) {
    PlaneSpan elsewhere = span;
    (group ? elsewhere.group : elsewhere.plane) = 1;
    EXPECT_NE(oracle.Check(elsewhere), "");
  }
}

TEST(ContentOracle, APartIsAFunctionOfTheTokensBeforeIt) {
  const ContentOracle shorter({}, {}, Count(0, 20));
  PlaneSpan span = SecondBlock();
  span.end_token = 20;
  std::vector<std::byte> slot = Filled(shorter, span);
  span.bytes = slot.data();
  const ContentOracle longer({}, {}, Joined(Count(0, 20), Count(500, 12)));
  EXPECT_EQ(longer.Check(span), "");  // the first four positions are the same
  span.end_token = 21;
  EXPECT_NE(longer.Check(span), "");  // the fifth was never written
}

}  // namespace
}  // namespace fermata_test
