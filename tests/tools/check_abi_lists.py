#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_abi_lists.py INCLUDE_DIR SYMBOLS LAYOUT: the two committed tables miss nothing that the headers declare.

SYMBOLS lists every FERMATA_API function, sorted; LAYOUT has a row for every struct and every field of it.
Exit 0: complete; 1: something is missing or too much, named; 2: usage.
"""
import os
import re
import sys

HEADERS = ("fermata.h", "fermata_experimental.h")


def declared(include):
    functions, fields = set(), []
    for name in HEADERS:
        with open(os.path.join(include, "fermata", name), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        functions |= set(re.findall(r"FERMATA_API\s+[^;(]*?\b(fermata_\w+)\s*\(", text))
        for match in re.finditer(r"typedef struct(?: \w+)? \{(.*?)\} (\w+);", text, flags=re.S):
            fields.append(match.group(2))
            for statement in match.group(1).split(";"):
                field = re.search(r"\(\*(\w+)\)|(\w+)\s*(?:\[\w+\])?\s*$", statement.strip())
                if field:
                    fields.append(match.group(2) + "." + (field.group(1) or field.group(2)))
    return functions, fields


def main():
    if len(sys.argv) != 4:
        print(__doc__)
        return 2
    functions, fields = declared(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        symbols = file.read().split()
    with open(sys.argv[3], encoding="utf-8") as file:
        rows = [line.split()[0] for line in file if line.strip()]
    found = []
    found += [f"symbols: {s} is declared and not listed" for s in sorted(functions - set(symbols))]
    found += [f"symbols: {s} is listed and not declared" for s in sorted(set(symbols) - functions)]
    found += [] if symbols == sorted(set(symbols)) else ["symbols: not sorted, or a name comes twice"]
    found += [f"layout: {f} is declared and has no row" for f in fields if f not in rows]
    found += [f"layout: {f} has a row and is not declared" for f in rows if f not in fields]
    print("\n".join(found + [f"check_abi_lists: {len(functions)} functions, {len(rows)} rows, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
