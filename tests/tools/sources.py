# SPDX-License-Identifier: Apache-2.0
"""What the gates share: which files a tree has, and source text without comments. Knows no rule.

A tree is walked, not asked of git, so that a gate also sees what is not committed yet and works on an unpacked release.
"""
import os
import re

# Kept bad inputs are bad on purpose; build trees are not ours.
SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".cache", ".vscode", ".idea"}
RED_FOLDER = os.path.join("tests", "tools", "red")


def walk(root):
    """Yields the paths, relative to root, of all files of the tree."""
    for folder, folders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        folders[:] = sorted(
            f for f in folders
            if f not in SKIPPED_FOLDERS and not f.startswith("build-")
            and os.path.normpath(os.path.join(relative, f)) != RED_FOLDER)
        for name in sorted(names):
            yield os.path.normpath(os.path.join(relative, name))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text):
    """C or C++ text with comments blanked out; line numbers stay."""
    def blank(match):
        token = match.group(0)
        return "\n" * token.count("\n") if token.startswith(("//", "/*")) else token
    return _TOKEN.sub(blank, text)
