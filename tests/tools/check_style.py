#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_style.py [--every-rule-fires] ROOT: constructs that have a better replacement here.

A line that must break a rule says so on itself or on the line above: `STYLE_OK(rule): why`.
--every-rule-fires is for the kept bad inputs: it succeeds only if each rule finds something.
Exit 0: clean; 1: violations, one a line; 2: usage.
"""
import os
import re
import sys

import sources

CODE = (".h", ".cc", ".c")
SEAMED = ("src/cache/", "tiers/", "allocators/")  # where time, threads and chance come from outside


def in_code(path):
    return path.endswith(CODE)


def in_seamed_code(path):
    return in_code(path) and path.startswith(SEAMED)


# rule: (where, pattern in text without comments, replacement)
BANS = {
    "std-mutex": (
        lambda p: in_code(p) and p != "src/base/mutex.h",
        r"std::(recursive_|shared_|timed_)?mutex\b|std::condition_variable|std::(lock_guard|unique_lock|scoped_lock)\b"
        r"|absl::(Mutex|CondVar|Notification)\b|pthread_mutex",
        "use Mutex, MutexLock, CondVar of base/mutex.h"),
    "getenv": (in_code, r"\b(secure_)?getenv\s*\(", "take it as a configuration field or an option"),
    "sleep": (
        in_code, r"\bsleep_(for|until)\b|\bu?sleep\s*\(|\b(clock_)?nanosleep\s*\(",
        "wait on a condition with a deadline, or step a ManualClock"),
    "absl-string-view": (in_code, r"\babsl::string_view\b", "use std::string_view"),
    "using-namespace": (in_code, r"\busing\s+namespace\b", "name what you use: using std::span"),
    "thread": (
        in_seamed_code, r"\bstd::(thread|jthread|async)\b|\bpthread_create\b|\bstd::this_thread\b",
        "post to the Executor of base/executor.h"),
    "clock": (
        in_seamed_code,
        r"\bclock_gettime\b|\b(steady|system|high_resolution)_clock\b|\bgettimeofday\b|\btime\s*\(\s*(NULL|nullptr|0)\s*\)",
        "take a Clock of base/clock.h"),
    "random": (
        in_seamed_code, r"\bstd::(random_device|mt19937)|\bs?rand\s*\(", "take a seeded Random of base/random.h"),
    "throw": (
        lambda p: in_code(p) and not p.startswith(("tests/", "bench/")), r"\bthrow\b\s*[^;]",
        "return a Status; no exception crosses a layer"),
}

# Checked on the raw text of every file that has text.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(work|home|root)/\w")
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".in", ".map", ".yml", ".ini")


def is_script(root, path):
    if path.endswith((".py", ".sh")):
        return True
    if "." in os.path.basename(path) or not path.startswith(("scripts/", ".ci/")):
        return False
    return sources.read(root, path).startswith("#!")


def named_in_cmake(path, cmake):
    """Whether some CMake file names the source: literally, or by a loop's `${name}_suffix.cc` in its own folder."""
    base = os.path.basename(path)
    stem_words = set()
    for cmake_path, text in cmake.items():
        if re.search(r"(?<![\w.])" + re.escape(base) + r"(?![\w.])", text):
            return True
        if os.path.dirname(cmake_path) == os.path.dirname(path):
            stem_words |= set(re.findall(r"\w+", text))
            for suffix in re.findall(r"\$\{\w+\}([\w.]*\.cc?)\b", text):
                if base.endswith(suffix) and base[:len(base) - len(suffix)] in stem_words:
                    return True
    return False


def findings(root):
    """Yields (rule, path, line, message)."""
    paths = list(sources.walk(root))
    texts = {p: sources.read(root, p) for p in paths if p.endswith(TEXT) or is_script(root, p)}
    cmake = {p: t for p, t in texts.items() if p.endswith(("CMakeLists.txt", ".cmake"))}
    included = {os.path.basename(m) for p, t in texts.items() if p.endswith(CODE)
                for m in re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', t)}
    for path, text in texts.items():
        if path.endswith(CODE):
            bare = sources.without_comments(text)
            for rule, (where, pattern, replacement) in BANS.items():
                if not where(path):
                    continue
                for match in re.finditer(pattern, bare):
                    line = bare.count("\n", 0, match.start()) + 1
                    yield rule, path, line, f"{match.group(0).strip()}: {replacement}"
            if path.endswith((".cc", ".c")) and not named_in_cmake(path, cmake):
                yield "not-in-cmake", path, 1, "no CMakeLists.txt names it: add it, or delete it"
            if path.endswith(".h"):
                if not path.startswith("include/") and "#pragma once" not in text and "#ifndef FERMATA_" not in text:
                    yield "pragma-once", path, 1, "start with #pragma once"
                if os.path.basename(path) not in included:
                    yield "not-in-cmake", path, 1, "nothing includes it: include it, or delete it"
        if (path.endswith(CODE) or is_script(root, path)) and "SPDX-License-Identifier: Apache-2.0" not in text[:400]:
            yield "spdx", path, 1, "start with SPDX-License-Identifier: Apache-2.0"
        for match in MACHINE_PATH.finditer(text):
            yield ("machine-path", path, text.count("\n", 0, match.start()) + 1,
                   "a path of one machine: use a relative path, an option or a temporary directory")
        if path.endswith(CODE + (".py", ".sh", ".cmake", "CMakeLists.txt")) and path != "tests/tools/check_style.py":
            for match in TODO.finditer(text):
                yield ("todo", path, text.count("\n", 0, match.start()) + 1,
                       f"{match.group(0)} without an issue: write TODO(#12)")


def excused(texts, rule, path, line):
    lines = texts[path].split("\n")
    marks = [f"STYLE_OK({rule})"]
    if rule == "using-namespace":
        marks.append("NOLINT(google-build-using-namespace)")  # clang-tidy's word for the same excuse
    return any(mark in lines[i] for mark in marks for i in (line - 1, line - 2) if 0 <= i < len(lines))


def main():
    arguments = sys.argv[1:]
    every = "--every-rule-fires" in arguments
    arguments = [a for a in arguments if a != "--every-rule-fires"]
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print(__doc__)
        return 2
    root = arguments[0]
    texts = {}
    found = []
    for rule, path, line, message in findings(root):
        texts.setdefault(path, sources.read(root, path))
        if not excused(texts, rule, path, line):
            found.append((rule, f"{path}:{line}: [{rule}] {message}"))
    for _, text in found:
        print(text)
    print(f"check_style: {len(found)} violations")
    if every:
        rules = set(BANS) | {"not-in-cmake", "pragma-once", "spdx", "machine-path", "todo"}
        silent = sorted(rules - {rule for rule, _ in found})
        print("check_style: rules that found nothing: " + (", ".join(silent) or "none"))
        return 1 if silent else 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
