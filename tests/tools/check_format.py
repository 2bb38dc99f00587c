#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_format.py [--fix] ROOT: every C and C++ file is as clang-format 14 leaves it. Other versions format differently, so no
other will do. Exit 0: clean; 1: files differ, named; 2: usage, or clang-format-14 is missing.
"""
import os
import shutil
import subprocess
import sys

import sources


def main():
    arguments = [a for a in sys.argv[1:] if a != "--fix"]
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print(__doc__)
        return 2
    if shutil.which("clang-format-14") is None:
        print("check_format: clang-format-14 is not installed (scripts/setup installs it)")
        return 2
    root = arguments[0]
    paths = [os.path.join(root, p) for p in sources.walk(root) if p.endswith((".h", ".cc", ".c"))]
    if "--fix" in sys.argv:
        return subprocess.run(["clang-format-14", "-i", *paths], check=False).returncode
    run = subprocess.run(["clang-format-14", "--dry-run", "-Werror", *paths], capture_output=True, text=True, check=False)
    bad = sorted({line.split(":")[0] for line in run.stderr.splitlines() if ": error:" in line})
    for path in bad:
        print(f"{os.path.relpath(path, root)}: not as clang-format-14 leaves it (scripts/format)")
    print(f"check_format: {len(paths)} files, {len(bad)} to format")
    if run.returncode != 0 and not bad:
        print(run.stderr)
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
