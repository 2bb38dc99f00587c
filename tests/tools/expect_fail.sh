#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# expect_fail.sh REGEX COMMAND...: a gate must find fault with its kept bad input: exit code 1 exactly (not a crash, not a
# usage error) and a message that matches the extended regular expression.
pattern=$1
shift
output=$("$@" 2>&1)
code=$?
printf '%s\n' "$output"
if [ $code -ne 1 ]; then
  echo "expect_fail: the gate ended with $code on bad input, want 1"
  exit 1
fi
if ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
  echo "expect_fail: the gate failed, but not for the reason expected: $pattern"
  exit 1
fi
echo "expect_fail: red as it should be"
