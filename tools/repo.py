"""What the checkers share: where the repository is, its files, how findings are printed."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folders of made data: no style rules there.
DATA_FOLDERS = {"testdata", "corpus", "data"}
SKIPPED_FOLDERS = {".git", "build", "target", "node_modules", "__pycache__", ".cache"}


def files(root: Path) -> list[Path]:
    """All files of the tree at root, relative to it: what git tracks or would, else a walk."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout
        found = [Path(name) for name in listed.split("\0") if name]
        return sorted({path for path in found if (root / path).is_file()})
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        found += [(Path(folder) / name).relative_to(root) for name in names]
    return sorted(found)


def is_data(path: Path) -> bool:
    return any(part in DATA_FOLDERS for part in path.parts[:-1])


def read(root: Path, path: Path) -> str:
    return (root / path).read_text(encoding="utf-8", errors="replace")


def run_checker(description: str, check) -> int:
    """A checker's main: check(root) returns findings, one line each; none is success."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check")
    findings = check(parser.parse_args().root.resolve())
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} finding(s)", file=sys.stderr)
    return 1 if findings else 0
