#!/usr/bin/env python3
"""Finds sources that no build file names, and tests that nothing runs.

A .cc of src/, bench/ or fuzz/ must be named, by its path from there, in the CMakeLists.txt of its
folder or of one above; a tests/**/*_test.py in tests/CMakeLists.txt or one below; a
tools/tests/*.py must be a *_test.py, which the discovery of unittest runs.
"""

import re
import sys
from pathlib import Path

import repo

SOURCE_FOLDERS = ("src", "bench", "fuzz")
WORD = re.compile(r"[\w./+-]+")


def build_words(root: Path, paths: list[Path]) -> dict[Path, set[str]]:
    """The words of every CMakeLists.txt without its comments, by its folder."""
    return {path.parent: set(WORD.findall(re.sub(r"#[^\n]*", "", repo.read(root, path))))
            for path in paths if path.name == "CMakeLists.txt"}


def is_named(path: Path, words: dict[Path, set[str]]) -> bool:
    return any(path.relative_to(folder).as_posix() in words.get(folder, ())
               for folder in path.parents)


def check(root: Path) -> list[str]:
    paths = [path for path in repo.files(root) if not repo.is_data(path)]
    words = build_words(root, paths)
    findings = []
    for path in paths:
        top = path.parts[0]
        if top in SOURCE_FOLDERS and path.suffix == ".cc" and not is_named(path, words):
            findings.append(f"{path}: no CMakeLists.txt builds it")
        elif top == "tests" and path.name.endswith("_test.py") and not is_named(path, words):
            findings.append(f"{path}: no CMakeLists.txt under tests/ runs it")
        elif (path.parent == Path("tools/tests") and path.suffix == ".py"
              and not path.name.endswith("_test.py")):
            findings.append(f"{path}: named other than *_test.py, so nothing runs it")
    return findings


if __name__ == "__main__":
    sys.exit(repo.run_checker(__doc__, check))
