#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_symbols.sh LIBRARY LIST: the library exports exactly the listed functions, and all of them are fermata_*.
# Exit 0: equal; 1: they differ, each difference named; 2: usage.
set -u
if [ $# -ne 2 ] || [ ! -f "$1" ] || [ ! -f "$2" ]; then
  echo "usage: check_symbols.sh LIBRARY LIST"
  exit 2
fi
# Version nodes (type A, FERMATA_0) are no symbols of ours to call.
exported=$(nm -D --defined-only --without-symbol-versions "$1" | awk '$2 != "A" {print $3}' | LC_ALL=C sort) || exit 2
listed=$(LC_ALL=C sort "$2")
failed=0
[ -n "$exported" ] || { echo "$1 exports nothing"; failed=1; }
for symbol in $exported; do
  case $symbol in fermata_*) ;; *) echo "not ours to export: $symbol"; failed=1 ;; esac
  printf '%s\n' "$listed" | grep -qx "$symbol" || { echo "exported but not listed: $symbol"; failed=1; }
done
for symbol in $listed; do
  printf '%s\n' "$exported" | grep -qx "$symbol" || { echo "listed but not exported: $symbol"; failed=1; }
done
exit $failed
