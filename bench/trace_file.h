// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out: plain or gzip text into a string, the SHA-256 of what lies on disk, text
// to a file. Knows no format. Everything the world can make fail comes back as a Status with the
// path in it. Thread safety: free functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fermata::bench {

// More than this after decompression is refused: no trace is that large, a gzip bomb is.
constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::string_view bytes);
  std::string HexDigest();  // Once.

 private:
  void* context_;
};

std::string Sha256Hex(std::string_view bytes);

// Reads `path`, decompressing it when it is gzip, and adds its raw bytes to `digest` (may be null).
Result<std::string> ReadTextFile(const std::string& path, Sha256* digest);
bool IsDirectory(const std::string& path);
// Names of the regular files in `path` that end in `suffix`, sorted, with the directory in front.
Result<std::vector<std::string>> ListFiles(const std::string& path, std::string_view suffix);
// gzip when the name ends in .gz.
Status WriteTextFile(const std::string& path, std::string_view text);
// Whether `path` can be written, without harming what is there.
Status CheckWritable(const std::string& path);

// Splits text into lines, counting from 1; a final newline does not make an empty last line.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}
  bool Next(std::string_view* line);
  uint64_t number() const { return number_; }

 private:
  std::string_view rest_;
  uint64_t number_ = 0;
};

}  // namespace fermata::bench
