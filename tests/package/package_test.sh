#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# package_test.sh SOURCE BUILD CC CXX: installs the build into a fresh prefix, moves the prefix (nothing may point back), and
# builds and runs bindings/examples/hello.c against it in three ways.
set -eu
source=$1
build=$2
cc=$3
cxx=$4
scratch=$(mktemp -d "${TMPDIR:-/tmp}/fermata-package-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH

cmake --install "$build" --prefix "$scratch/staged" >"$scratch/install.log"
mv "$scratch/staged" "$scratch/prefix"
prefix=$scratch/prefix
library=$(find "$prefix" -name libfermata.so)
libdir=$(dirname "$library")
fail() { echo "package: $*"; exit 1; }

# What is there, and nothing more of ours.
for header in fermata.h fermata_experimental.h; do
  [ -f "$prefix/include/fermata/$header" ] || fail "include/fermata/$header is not installed"
done
surplus=$(find "$prefix/include" -type f ! -name fermata.h ! -name fermata_experimental.h)
[ -z "$surplus" ] || fail "installs more headers: $surplus"
[ -z "$(find "$prefix" -name '*.a')" ] || fail "installs a static library"
soname=$(objdump -p "$library" | awk '$1 == "SONAME" {print $2}')
[ "$soname" = libfermata.so.0 ] || fail "SONAME is $soname, want libfermata.so.0"
[ -e "$libdir/libfermata.so.0" ] || fail "libfermata.so.0 is missing"
if grep -rlI -- "$source" "$prefix" >"$scratch/leaks" 2>/dev/null; then
  fail "the source path is in $(cat "$scratch/leaks")"
fi

expect() { # NAME COMMAND...: runs it and compares what it prints.
  name=$1
  shift
  output=$("$@") || fail "$name: the example fails"
  [ "$output" = "7 slots used; 96 of 100 tokens found again" ] || fail "$name: printed $output"
  echo "package: $name works"
}

# 1. find_package, in C and (for the header's sake) with a C++ file.
mkdir "$scratch/consumer"
cp "$source/bindings/examples/hello.c" "$scratch/consumer/"
cat >"$scratch/consumer/cxx.cc" <<'END'
#include <fermata/fermata.h>
int main() { return fermata_abi() == ((FERMATA_VERSION_MAJOR << 16) | FERMATA_VERSION_MINOR) ? 0 : 1; }
END
cat >"$scratch/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(fermata 0.1 REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE fermata::fermata)
add_executable(cxx cxx.cc)
target_link_libraries(cxx PRIVATE fermata::fermata)
END
cmake -S "$scratch/consumer" -B "$scratch/consumer/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$scratch/consumer.log" || { cat "$scratch/consumer.log"; exit 1; }
cmake --build "$scratch/consumer/build" >"$scratch/consumer.log" || { cat "$scratch/consumer.log"; exit 1; }
expect find_package "$scratch/consumer/build/hello"
"$scratch/consumer/build/cxx" || fail "the library's ABI number is not the header's"
sed 's/fermata 0.1 REQUIRED/fermata 0.2 QUIET/; s/^add_executable.*//; s/^target_link.*//' \
  "$scratch/consumer/CMakeLists.txt" >"$scratch/consumer/next.txt"
echo 'if(fermata_FOUND)
  message(FATAL_ERROR "0.1 passes for 0.2")
endif()' >>"$scratch/consumer/next.txt"
mkdir "$scratch/other" && mv "$scratch/consumer/next.txt" "$scratch/other/CMakeLists.txt"
cmake -S "$scratch/other" -B "$scratch/other/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >/dev/null || fail "find_package(fermata 0.2) accepts 0.1"

# 2. pkg-config.
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name fermata.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion fermata)" = 0.1.0 ] || fail "pkg-config says version $(pkg-config --modversion fermata)"
# shellcheck disable=SC2046
"$cc" -std=c99 "$source/bindings/examples/hello.c" -o "$scratch/hello_pc" $(pkg-config --cflags --libs fermata)
expect pkg-config env LD_LIBRARY_PATH="$libdir" "$scratch/hello_pc"

# 3. A plain compiler call.
"$cc" "$source/bindings/examples/hello.c" -I "$prefix/include" -L "$libdir" -lfermata -o "$scratch/hello_plain"
expect "plain $(basename "$cc")" env LD_LIBRARY_PATH="$libdir" "$scratch/hello_plain"
