#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_readme.py README EXAMPLE: the C block that follows the README's marker

    <!-- example: bindings/examples/readme.c -->

is the example file word for word (without its own leading one-line comments), and at most 20 lines. The example is built and run
as a test, so the README's code works. Exit 0: equal; 1: they differ; 2: usage.
"""
import difflib
import re
import sys

LINES_MAX = 20


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        readme = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        example = file.read().splitlines()
    while example and example[0].startswith("/*") and example[0].endswith("*/"):
        example.pop(0)
    match = re.search(r"<!-- example: [\w/.]+ -->\n+```c\n(.*?)```", readme, flags=re.S)
    if match is None:
        print("check_readme: the README has no marked C block")
        return 1
    shown = match.group(1).splitlines()
    failed = 0
    if len(shown) > LINES_MAX:
        print(f"check_readme: the README's example has {len(shown)} lines, more than {LINES_MAX}")
        failed = 1
    if shown != example:
        print("check_readme: the README's example is not the one that is tested:")
        print("\n".join(difflib.unified_diff(example, shown, sys.argv[2], sys.argv[1], lineterm="")))
        failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
