#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_links.py ROOT: every relative link in a Markdown file leads to a file of the tree, and every `path` in backquotes that
starts with a folder of ours exists. Exit 0: all do; 1: some do not, named; 2: usage.
"""
import os
import re
import sys

import sources

LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`((?:src|include|allocators|tiers|bindings|tests|bench|docs|scripts|cmake)/[\w./-]+)`")


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        print(__doc__)
        return 2
    root = sys.argv[1]
    found = 0
    for path in sources.walk(root):
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(sources.read(root, path).splitlines(), 1):
            targets = [(t, os.path.join(os.path.dirname(path), t.split("#")[0])) for t in LINK.findall(line)
                       if not t.startswith(("http://", "https://", "mailto:", "#"))]
            targets += [(t, t) for t in QUOTED.findall(line)]
            for shown, target in targets:
                if not os.path.exists(os.path.join(root, target)):
                    print(f"{path}:{number}: {shown} leads nowhere")
                    found += 1
    print(f"check_links: {found} broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
