// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_file.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/check.h"

namespace fermata::bench {
namespace {

struct FileCloser {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, FileCloser>;

Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  return ErrorF(error == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable, "%s: %s: %s",
                path.c_str(), what, std::strerror(error));
}

Result<std::string> ReadRaw(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return ErrorF(StatusCode::kInvalidArgument, "%s: not a regular file", path.c_str());
  }
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return FileError(path, "cannot open");
  std::string bytes;
  std::string chunk(size_t{1} << 20, '\0');
  for (;;) {
    const size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    bytes.append(chunk.data(), got);
    if (bytes.size() > kMaxTextBytes) {
      return ErrorF(StatusCode::kInvalidArgument, "%s: larger than %llu bytes", path.c_str(),
                    static_cast<unsigned long long>(kMaxTextBytes));
    }
    if (got < chunk.size()) break;
  }
  if (std::ferror(file.get()) != 0) return FileError(path, "cannot read");
  return bytes;
}

Result<std::string> Inflate(const std::string& path, const std::string& packed) {
  z_stream stream{};
  // 16 + 15: gzip framing only, largest window.
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) {
    return ErrorF(StatusCode::kResourceExhausted, "%s: no memory to decompress", path.c_str());
  }
  std::unique_ptr<z_stream, int (*)(z_streamp)> end(&stream, inflateEnd);
  std::string text;
  std::string chunk(size_t{1} << 20, '\0');
  size_t at = 0;
  for (;;) {
    const size_t offered = std::min<size_t>(packed.size() - at, size_t{1} << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + at));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    at += offered - stream.avail_in;
    text.append(chunk.data(), chunk.size() - stream.avail_out);
    if (text.size() > kMaxTextBytes) {
      return ErrorF(StatusCode::kInvalidArgument, "%s: more than %llu bytes when decompressed",
                    path.c_str(), static_cast<unsigned long long>(kMaxTextBytes));
    }
    if (result == Z_STREAM_END) {
      if (at == packed.size()) return text;
      if (inflateReset(&stream) != Z_OK) break;  // another gzip member follows
    } else if (result != Z_OK ||
               (stream.avail_in == 0 && at == packed.size() && stream.avail_out != 0)) {
      break;
    }
  }
  return ErrorF(StatusCode::kInvalidArgument,
                "%s: the gzip data is damaged or ends early (byte %zu of %zu)", path.c_str(), at,
                packed.size());
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  FERMATA_CHECK(context_ != nullptr);
  FERMATA_CHECK(EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::Update(std::string_view bytes) {
  FERMATA_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size()) ==
                1);
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  FERMATA_CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest, &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex.push_back(kDigits[digest[i] >> 4]);
    hex.push_back(kDigits[digest[i] & 15]);
  }
  return hex;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 digest;
  digest.Update(bytes);
  return digest.HexDigest();
}

Result<std::string> ReadTextFile(const std::string& path, Sha256* digest) {
  Result<std::string> raw = ReadRaw(path);
  if (!raw.ok()) return raw;
  if (digest != nullptr) digest->Update(*raw);
  const std::string& bytes = *raw;
  if (bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b') return Inflate(path, bytes);
  return raw;
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Result<std::vector<std::string>> ListFiles(const std::string& path, std::string_view suffix) {
  std::error_code error;
  std::filesystem::directory_iterator it(path, error);
  std::vector<std::string> names;
  while (!error && it != std::filesystem::directory_iterator()) {
    const std::string name = it->path().string();
    std::error_code ignored;
    if (name.size() >= suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0 &&
        it->is_regular_file(ignored)) {
      names.push_back(name);
    }
    it.increment(error);
  }
  if (error) {
    return ErrorF(StatusCode::kUnavailable, "%s: cannot list: %s", path.c_str(),
                  error.message().c_str());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status WriteTextFile(const std::string& path, std::string_view text) {
  if (path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0) {
    gzFile file = gzopen(path.c_str(), "wb9");
    if (file == nullptr) return FileError(path, "cannot create");
    bool good = true;
    while (good && !text.empty()) {
      const size_t part = std::min<size_t>(text.size(), size_t{1} << 20);
      good = gzwrite(file, text.data(), static_cast<unsigned>(part)) == static_cast<int>(part);
      text.remove_prefix(part);
    }
    good = gzclose(file) == Z_OK && good;
    return good ? Status() : FileError(path, "cannot write");
  }
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return FileError(path, "cannot create");
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  const bool closed = std::fclose(file.release()) == 0;
  return wrote && closed ? Status() : FileError(path, "cannot write");
}

Status CheckWritable(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  {
    File file(std::fopen(path.c_str(), "ab"));
    if (file == nullptr) return FileError(path, "cannot write");
  }
  if (!existed) std::filesystem::remove(path, ignored);
  return Status();
}

bool LineReader::Next(std::string_view* line) {
  if (rest_.empty()) return false;
  const size_t end = rest_.find('\n');
  *line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  ++number_;
  return true;
}

}  // namespace fermata::bench
