#!/usr/bin/env python3
"""clang-tidy on every source that the build compiles, with a cache.

A source is clean once it was found clean with the same bytes in itself, in every header of the
repository that it includes (directly or not), in .clang-tidy, in its compile command and with the
same clang-tidy. The cache holds only such keys, so a fresh clone uses it too. Google Test programs
are asked for names and forms only: their errors show when they run, under the sanitizers too, and
the other checks would double the time. `./dev test` leaves them out, which saves a quarter of this step;
`./dev check` asks each one that differs from the last commit. These also get the static analyzer at its
full depth; what the newest commits touched gets its shallow mode, which takes a third of the time, and the
full one where that finds something, since it knows less; the rest goes without, also where a header of
theirs has changed. Coroutines go without it, since it does not know their frames: it takes their fields for
uninitialized.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import check_layering
import repo

CLANG_TIDY = "clang-tidy-19"
FOLDERS = ("src", "bench", "fuzz")
CACHE_DAYS_MAX = 60
NEWEST_COMMITS = 25
SHALLOW = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shoal" / "tidy"


def sources(root: Path, build: Path) -> dict[Path, str]:
    """The sources under FOLDERS that build compiles, with the command free of the tree's place."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if not path.is_relative_to(root) or path.relative_to(root).parts[0] not in FOLDERS:
            continue
        command = entry["command"].replace(str(build), "BUILD").replace(str(root), "ROOT")
        found.setdefault(path.relative_to(root), command)
    return found


class Keys:
    """The cache key of a source; remembers what it read."""

    def __init__(self, root: Path):
        self._root = root
        self._files = {}
        version = subprocess.run([CLANG_TIDY, "--version"], check=True, capture_output=True)
        self._common = hashlib.sha256(version.stdout + (root / ".clang-tidy").read_bytes()).digest()

    def of(self, path: Path, command: str) -> str:
        key = hashlib.sha256(self._common + command.encode())
        closure, waiting = set(), [path]
        while waiting:
            current = waiting.pop()
            if current in closure:
                continue
            closure.add(current)
            waiting += self._read(current)[1]
        for member in sorted(closure):
            key.update(f"{member}".encode() + self._read(member)[0])
        return key.hexdigest()

    def _read(self, path: Path) -> tuple[bytes, list[Path]]:
        if path not in self._files:
            data = (self._root / path).read_bytes()
            targets = [target for _, target in
                       check_layering.includes_of(data.decode(errors="replace"))]
            candidates = [folder / target for target in targets
                          for folder in (Path("src"), path.parent)]
            self._files[path] = (hashlib.sha256(data).digest(),
                                 [file for file in candidates if (self._root / file).is_file()])
        return self._files[path]


def is_test(path: Path) -> bool:
    return path.stem.endswith("_test")


class Depth(Enum):
    """Of the static analyzer."""
    NONE, SHALLOW, FULL = range(3)


def tidy(root: Path, build: Path, path: Path, depth: Depth) -> tuple[bool, str]:
    command = [CLANG_TIDY, "--quiet", "-p", str(build), str(root / path)]
    if is_test(path):
        command.insert(1, "--checks=-clang-analyzer-*,-bugprone-*,-performance-*")
    elif depth == Depth.NONE or "co_await" in (root / path).read_text():
        command.insert(1, "--checks=-clang-analyzer-*")
    ran = subprocess.run([*command, *SHALLOW] if depth == Depth.SHALLOW else command, capture_output=True, text=True)
    if ran.returncode != 0 and depth == Depth.SHALLOW:
        ran = subprocess.run(command, capture_output=True, text=True)
    # Standard error only counts what was suppressed, unless clang-tidy itself failed.
    return ran.returncode == 0, ran.stdout if ran.stdout.strip() else ran.stderr


def prune(cache: Path) -> None:
    oldest = time.time() - CACHE_DAYS_MAX * 86400
    for file in cache.iterdir():
        if file.stat().st_mtime < oldest:
            file.unlink(missing_ok=True)


def changed(root: Path) -> set[Path]:
    """What differs from the last commit."""
    if not (root / ".git").exists():
        return set()
    listed = subprocess.run(["git", "-C", str(root), "status", "--porcelain", "-z",
                             "--untracked-files=all", "--no-renames"],
                            check=True, capture_output=True, text=True).stdout
    return {Path(entry[3:]) for entry in listed.split("\0") if entry}


def touched_lately(root: Path) -> set[Path] | None:
    """What the newest commits changed; None where there is no history to tell."""
    if not (root / ".git").exists():
        return None
    listed = subprocess.run(["git", "-C", str(root), "log", "-n", str(NEWEST_COMMITS), "-z", "--name-only",
                             "--no-renames", "--format="], check=True, capture_output=True, text=True).stdout
    return {Path(entry.strip()) for entry in listed.split("\0") if entry.strip()}


def newest_first(root: Path, paths: list[Path]) -> list[Path]:
    """Newest first, so that a short budget goes to what was just written."""
    return sorted(paths, key=lambda path: -(root / path).stat().st_mtime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="+", type=Path, help="build folders, each configured")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="start no new file after this long, but those that differ from the last "
                             "commit; what is left is counted, no failure")
    parser.add_argument("--without-tests", action="store_true", help="no Google Test programs")
    parser.add_argument("--only", default="", help="only paths that start with this")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    root, cache = repo.ROOT, cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    prune(cache)
    keys, todo = Keys(root), {}
    for build in (path.resolve() for path in options.builds):
        for path, command in sources(root, build).items():
            if path in todo or not path.as_posix().startswith(options.only):
                continue
            if options.without_tests and is_test(path):
                continue
            todo[path] = (build, cache / keys.of(path, command))
    unclean = [path for path in todo if not todo[path][1].exists()]
    print(f"{len(todo)} sources, {len(todo) - len(unclean)} known to be clean", flush=True)
    end = time.monotonic() + options.seconds
    needed, lately = changed(root), touched_lately(root)
    failed, left = [], []

    def work(path: Path) -> None:
        if time.monotonic() > end and path not in needed:
            left.append(path)
            return
        build, mark = todo[path]
        depth = Depth.FULL if path in needed else Depth.SHALLOW if lately is None or path in lately else Depth.NONE
        clean, output = tidy(root, build, path, depth)
        if clean:
            mark.touch()
        else:
            failed.append(path)
            print(output.strip(), flush=True)
        print(f"{'clean' if clean else 'FAILED'}: {path}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, newest_first(root, unclean)))
    if left:
        print(f"{len(left)} sources left for `./dev test tidy` (time is up)")
    print(f"{len(failed)} source(s) with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
