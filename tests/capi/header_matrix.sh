#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# header_matrix.sh INCLUDE_DIR: compiles both public headers alone under every language standard they promise, with both
# compilers. Exit 0: all clean; 1: a standard fails, which is named; 2: a compiler is missing.
set -u
include=$1
failed=0
for tool in gcc g++ clang-14 clang++-14; do
  command -v "$tool" >/dev/null || { echo "header_matrix: $tool is not installed"; exit 2; }
done

# compile COMPILER LANGUAGE STANDARD FLAGS: the source comes on stdin.
compile() {
  "$1" -x "$2" "-std=$3" $4 -Wall -Wextra -pedantic -Werror -I "$include" -fsyntax-only - 2>&1
}

check() { # COMPILER LANGUAGE STANDARD
  if ! output=$(echo '#include <fermata/fermata.h>' | compile "$1" "$2" "$3" ""); then
    echo "fermata.h fails as $3 with $1:"; echo "$output"; failed=1
  fi
  if ! output=$(echo '#include <fermata/fermata_experimental.h>' |
      compile "$1" "$2" "$3" -DFERMATA_ALLOW_EXPERIMENTAL); then
    echo "fermata_experimental.h fails as $3 with $1:"; echo "$output"; failed=1
  fi
  if echo '#include <fermata/fermata_experimental.h>' | compile "$1" "$2" "$3" "" >/dev/null; then
    echo "fermata_experimental.h compiles as $3 with $1 without FERMATA_ALLOW_EXPERIMENTAL"; failed=1
  fi
}

for standard in c99 c11 c17; do
  check gcc c $standard
  check clang-14 c $standard
done
for standard in c++98 c++11 c++14 c++17 c++20; do
  check g++ c++ $standard
  check clang++-14 c++ $standard
done
exit $failed
