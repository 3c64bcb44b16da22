#!/usr/bin/env python3
"""Sizes of files, functions, parameter lists and folders (STYLE: functions and files).

An exemption is a line of tools/size_exemptions.txt: KIND PATH[:FUNCTION] REASON, where KIND is
file, function, parameters or folder. One that exempts nothing is a finding too.
"""

import sys
from collections import Counter
from pathlib import Path

import cpp_scan
import repo

SOURCE_LINES_MAX = 800
TEST_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
KERNEL_LINES_MAX = 120
PARAMETERS_MAX = 5
FOLDER_FILES_MAX = 20
KERNEL_FOLDER = "src/tensor/cpu/"
CODE = {".cc", ".h", ".py", ".sh", ".rs", ".ts"}
CPP = {".cc", ".h"}
NOT_COUNTED = {"CMakeLists.txt", "README.md"}
EXEMPTIONS = Path("tools/size_exemptions.txt")


def is_test(path: Path) -> bool:
    return path.stem.endswith("_test") or path.parts[0] == "tests" or "testing" in path.parts


def read_exemptions(root: Path) -> tuple[dict[tuple[str, str], str], list[str]]:
    exemptions, findings = {}, []
    if not (root / EXEMPTIONS).exists():
        return exemptions, findings
    for number, line in enumerate(repo.read(root, EXEMPTIONS).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) < 3 or words[0] not in ("file", "function", "parameters", "folder"):
            findings.append(f"{EXEMPTIONS}:{number}: wanted KIND PATH[:FUNCTION] REASON")
            continue
        exemptions[(words[0], words[1])] = f"{EXEMPTIONS}:{number}"
    return exemptions, findings


def oversized(root: Path, paths: list[Path]):
    """Yields (kind, subject, message) for everything above its limit."""
    for path in paths:
        text = repo.read(root, path)
        lines = text.count("\n")
        lines_max = TEST_LINES_MAX if is_test(path) else SOURCE_LINES_MAX
        if lines > lines_max:
            yield "file", f"{path}", f"{path}:1: {lines} lines, at most {lines_max}"
        if path.suffix not in CPP:
            continue
        kernel = path.as_posix().startswith(KERNEL_FOLDER)
        function_max = KERNEL_LINES_MAX if kernel else FUNCTION_LINES_MAX
        for function in cpp_scan.functions(text):
            place, subject = f"{path}:{function.line}", f"{path}:{function.name}"
            if function.lines > function_max:
                yield "function", subject, (
                    f"{place}: {function.name} has {function.lines} lines, at most {function_max}")
            if function.parameters > PARAMETERS_MAX:
                yield "parameters", subject, (
                    f"{place}: {function.name} has {function.parameters} parameters, "
                    f"at most {PARAMETERS_MAX}")


def full_folders(paths: list[Path]):
    counts = Counter(path.parent for path in paths if path.name not in NOT_COUNTED)
    for folder, count in sorted(counts.items()):
        if count > FOLDER_FILES_MAX:
            yield "folder", f"{folder}", f"{folder}: {count} files, at most {FOLDER_FILES_MAX}"


def check(root: Path) -> list[str]:
    exemptions, findings = read_exemptions(root)
    paths = [path for path in repo.files(root) if not repo.is_data(path)]
    code = [path for path in paths if path.suffix in CODE]
    used = set()
    for kind, subject, message in [*oversized(root, code), *full_folders(paths)]:
        if (kind, subject) in exemptions:
            used.add((kind, subject))
        else:
            findings.append(message)
    findings += [f"{place}: exempts nothing"
                 for key, place in exemptions.items() if key not in used]
    return findings


if __name__ == "__main__":
    sys.exit(repo.run_checker(__doc__, check))
