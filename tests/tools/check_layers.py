#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_layers.py ROOT: an include only points down.

    include/fermata <- bindings, bench, tests
    src/base <- allocators <- tiers <- src/cache <- bindings/c

Exit 0: clean; 1: violations, one a line; 2: usage.
"""
import os
import re
import sys

import sources

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)

# Folder of the file -> first components of includes it may use. The first entry that fits counts.
PUBLIC = {"fermata"}
BELOW = {
    "src/base": {"base"},
    "allocators": {"base", "allocators"},
    "tiers": {"base", "allocators", "tiers"},
    "src/cache": {"base", "allocators", "tiers", "cache"},
    "bindings/examples": PUBLIC,
    "bindings/c": {"base", "allocators", "tiers", "cache", "bindings"} | PUBLIC,
    "include/fermata": PUBLIC,
    # Policies, micro benchmarks and the rows of `index` about slots use internal headers; the rest of bench has no private
    # door: what a replay can do, any user can. src/base is open to all.
    "bench/micro": {"base", "allocators", "tiers", "cache", "bench"} | PUBLIC,
    "bench/policy_": {"base", "cache", "bench"} | PUBLIC,
    "bench/index_slot_": {"base", "allocators", "bench"},
    "bench": {"base", "bench"} | PUBLIC,
    "tests/capi": PUBLIC,
}
OURS = {"base", "allocators", "tiers", "cache", "bindings", "bench", "tests", "fermata"}
# Third parties that have one home: header prefix -> path prefix that may include it.
HOMES = {"liburing": "tiers/ssd_", "rocksdb/": "tiers/ssd_", "cuda": "tiers/cuda_"}


def allowed_for(path):
    for folder in BELOW:
        if path.startswith(folder if folder.endswith("_") else folder + "/"):
            return folder, BELOW[folder]
    return None, None


def violations(root):
    for path in sources.walk(root):
        if not path.endswith((".h", ".cc", ".c")):
            continue
        text = sources.without_comments(sources.read(root, path))
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            target = match.group(2)
            first = target.split("/")[0]
            for header, home in HOMES.items():
                if target.startswith(header) and not path.startswith(home):
                    yield f"{path}:{line}: {target} may be included in {home}* only"
            folder, allowed = allowed_for(path)
            if allowed is None:
                continue
            if "/" in target and first in OURS and first not in allowed:
                yield f"{path}:{line}: {folder} may not include {target} (may: {', '.join(sorted(allowed))})"
            if match.group(1) == '"' and "/" not in target and folder != "tests/capi":
                yield f'{path}:{line}: "{target}" is not rooted; write the folder too ("base/status.h")'


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        print(__doc__)
        return 2
    found = list(violations(sys.argv[1]))
    for violation in found:
        print(violation)
    print(f"check_layers: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
