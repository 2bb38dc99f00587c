// SPDX-License-Identifier: Apache-2.0
//
// main() for a fuzz target in builds without libFuzzer: feeds it every file of a corpus folder, the
// empty input, and every file cut short at each eighth of its length. Fails when the folder has no
// file, so that a lost corpus is noticed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  LLVMFuzzerTestOneInput(nullptr, 0);
  size_t runs = 1;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream),
                            std::istreambuf_iterator<char>()};
    for (size_t eighth = 1; eighth <= 8; ++eighth) {
      // A copy of the exact size, so that AddressSanitizer sees a read past its end.
      const std::vector<uint8_t> input(
          bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() * eighth / 8));
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++runs;
    }
  }
  std::printf("%zu inputs of %zu files\n", runs, files.size());
  return files.empty() ? 1 : 0;
}
