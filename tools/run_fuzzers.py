#!/usr/bin/env python3
"""Runs the fuzzers of build/asan/fuzz, each for its share of some seconds, two at a time.

Each starts from its committed corpus (fuzz/corpus/NAME) and from what earlier runs found
(build/asan/fuzz/corpus/NAME). An input that breaks one is left under build/asan/fuzz/artifacts/.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import repo

JOBS = 2
# Of the seconds, where it is not all of them: few kinds of input, or a parser that is slow to vary.
SHARES = {"fuzz_folder": 0.5, "fuzz_step": 0.5, "fuzz_tokenizer": 0.5}
BUILD = repo.ROOT / "build" / "asan" / "fuzz"


def fuzzers() -> list[Path]:
    return sorted(path for path in BUILD.iterdir()
                  if path.is_file() and os.access(path, os.X_OK) and not path.suffix)


def run(fuzzer: Path, seconds: int) -> bool:
    name = fuzzer.name
    found, artifacts = BUILD / "corpus" / name, BUILD / "artifacts" / name
    seeds = repo.ROOT / "fuzz" / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{name}.log"
    command = [str(fuzzer), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
               "-malloc_limit_mb=1024", "-print_final_stats=1", f"-artifact_prefix={artifacts}/",
               str(found)] + ([str(seeds)] if seeds.is_dir() else [])
    started = time.monotonic()
    with log.open("w") as output:
        try:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, timeout=seconds + 120).returncode
        except subprocess.TimeoutExpired:
            output.write("\nit did not stop when its time was up\n")
            code = 1
    text = log.read_text(errors="replace").splitlines()
    runs = next((line.split()[-1] for line in text if "number_of_executed_units" in line), "0")
    if code != 0:
        print("\n".join(text[-60:]))
    verdict = "ok" if code == 0 else f"FAILED (exit {code}), see {artifacts} and {log}"
    print(f"{name}: {runs} inputs in {time.monotonic() - started:.0f} s: {verdict}", flush=True)
    return code == 0


def seconds_of(fuzzer: Path, options: argparse.Namespace) -> int:
    """A fuzzer that is asked for by name has all the time."""
    share = 1 if options.name else SHARES.get(fuzzer.name, 1)
    return max(1, round(options.seconds * share))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="only this fuzzer")
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("FUZZ_SECONDS", "60")))
    options = parser.parse_args()
    chosen = [path for path in fuzzers() if options.name in (None, path.name)]
    # The long ones first, so that the last rounds are short.
    chosen.sort(key=lambda path: -SHARES.get(path.name, 1))
    if not chosen:
        names = ", ".join(path.name for path in fuzzers()) or "none"
        print(f"no fuzzer {options.name or ''}; there are: {names}")
        return 1
    with ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(lambda path: run(path, seconds_of(path, options)), chosen))
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
