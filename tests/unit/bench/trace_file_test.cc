// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace fermata::bench {
namespace {

using ::testing::HasSubstr;

class TraceFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "fermata-trace-file-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const char* name) const { return dir_ + "/" + name; }

  std::string dir_;
};

TEST_F(TraceFile, GzipAndPlainReadTheSame) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i) + "\n";
  ASSERT_TRUE(WriteTextFile(Path("plain"), text).ok());
  ASSERT_TRUE(WriteTextFile(Path("packed.gz"), text).ok());
  EXPECT_LT(std::filesystem::file_size(Path("packed.gz")), text.size() / 2);
  EXPECT_EQ(*ReadTextFile(Path("plain"), nullptr), text);
  EXPECT_EQ(*ReadTextFile(Path("packed.gz"), nullptr), text);
}

TEST_F(TraceFile, ConcatenatedGzipMembersAreOneText) {
  ASSERT_TRUE(WriteTextFile(Path("a.gz"), "one\n").ok());
  Result<std::string> raw = [&] {
    Sha256 unused;
    return ReadTextFile(Path("a.gz"), &unused);
  }();
  ASSERT_TRUE(raw.ok());
  const auto shell = "cat " + Path("a.gz") + " " + Path("a.gz") + " > " + Path("b.gz");
  ASSERT_EQ(std::system(shell.c_str()), 0);
  EXPECT_EQ(*ReadTextFile(Path("b.gz"), nullptr), "one\none\n");
}

TEST_F(TraceFile, CutGzipIsAnErrorNotAShorterText) {
  ASSERT_TRUE(WriteTextFile(Path("a.gz"), std::string(100000, 'x')).ok());
  for (const uint64_t size : {3u, 10u, 60u}) {
    std::filesystem::resize_file(Path("a.gz"), size);
    Result<std::string> text = ReadTextFile(Path("a.gz"), nullptr);
    ASSERT_FALSE(text.ok()) << size;
    EXPECT_THAT(text.status().message(), HasSubstr("damaged or ends early"));
    ASSERT_TRUE(WriteTextFile(Path("a.gz"), std::string(100000, 'x')).ok());
  }
}

TEST_F(TraceFile, DigestIsOfTheBytesOnDisk) {
  ASSERT_TRUE(WriteTextFile(Path("abc"), "abc").ok());
  Sha256 digest;
  ASSERT_TRUE(ReadTextFile(Path("abc"), &digest).ok());
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(digest.HexDigest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(TraceFile, CheckWritableLeavesNoTrace) {
  EXPECT_TRUE(CheckWritable(Path("new")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  ASSERT_TRUE(WriteTextFile(Path("old"), "kept").ok());
  EXPECT_TRUE(CheckWritable(Path("old")).ok());
  EXPECT_EQ(*ReadTextFile(Path("old"), nullptr), "kept");
  EXPECT_FALSE(CheckWritable(Path("no/such/dir")).ok());
}

TEST(LineReader, CountsLinesAndDropsCarriageReturns) {
  LineReader lines("a\r\n\nb");
  std::string_view line;
  ASSERT_TRUE(lines.Next(&line));
  EXPECT_EQ(line, "a");
  ASSERT_TRUE(lines.Next(&line));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(lines.Next(&line));
  EXPECT_EQ(line, "b");
  EXPECT_EQ(lines.number(), 3u);
  EXPECT_FALSE(lines.Next(&line));
}

}  // namespace
}  // namespace fermata::bench
