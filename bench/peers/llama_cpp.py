#!/usr/bin/env python3
"""Measures Shoal and llama.cpp on one model file in alternating runs, prefill and decode apart.

    sudo bench/peers/llama_cpp.py MODEL.gguf            # 1 and 2 threads, 5 runs of each
    sudo bench/peers/llama_cpp.py MODEL.gguf --json

llama.cpp is Debian's package of the testing suite, installed by debootstrap into a folder of the
user's cache ($XDG_CACHE_HOME/shoal/peers) and run in a private mount namespace, so that nothing of it
touches this system. Its CPU library picks the build for the processor at hand. Runs alternate, since
speed drifts on shared machines; the ratio is taken pair by pair, and the median of the pairs shown.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = "testing"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "shoal" / "peers"


def debian_mirror() -> str:
    """The mirror that this machine's apt is set up with."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
                            capture_output=True, text=True, check=True).stdout.split()
    for uri in listed:
        if uri.rstrip("/").endswith("/debian"):
            return uri
    sys.exit("llama_cpp.py: apt has no Debian mirror: this comparison needs Debian")


def prepare_peer() -> Path:
    folder = cache_folder() / SUITE
    if (folder / "usr/bin/llama-bench").exists():
        return folder
    if shutil.which("debootstrap") is None:
        sys.exit("llama_cpp.py: debootstrap is missing: apt-get install debootstrap")
    print(f"installing llama.cpp of Debian {SUITE} into {folder} (once)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    run_quietly(["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(partial),
                 debian_mirror()])
    run_quietly(["chroot", str(partial), "apt-get", "install", "-y", "--no-install-recommends",
                 "llama.cpp-tools", "llama.cpp-tools-extra"])
    partial.rename(folder)
    return folder


def run_quietly(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"llama_cpp.py: {' '.join(command)} failed:\n{done.stdout[-2000:]}")


def run_llama(folder: Path, model: Path, threads: int, args: argparse.Namespace) -> dict[str, float]:
    """One run: {"prefill": tokens/s, "decode": tokens/s}."""
    inner = ("mount -t proc proc {0}/proc && mount --bind /sys {0}/sys && mkdir -p {0}/model && "
             "mount --bind {1} {0}/model && exec chroot {0} llama-bench -m /model/{2} -t {3} -p {4} -n {5} "
             "-r 1 -o json").format(quote(folder), quote(model.parent), quote(model.name), threads,
                                    args.prompt_tokens, args.answer_tokens)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inner], capture_output=True, text=True,
                          timeout=900)
    if done.returncode != 0:
        sys.exit(f"llama_cpp.py: llama-bench failed:\n{done.stderr[-2000:]}")
    speeds = {}
    for row in json.loads(done.stdout):
        speeds["decode" if row["n_gen"] else "prefill"] = row["avg_ts"]
    return speeds


def run_shoal(program: Path, model: Path, threads: int, args: argparse.Namespace) -> dict[str, float]:
    done = subprocess.run([str(program), "bench", "model", str(model), "--threads", str(threads), "-p",
                           str(args.prompt_tokens), "-n", str(args.answer_tokens), "--repeats", "1",
                           "--json"], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        sys.exit(f"llama_cpp.py: shoal failed:\n{done.stderr[-2000:]}")
    figures = json.loads(done.stdout)
    return {"prefill": figures["prefill_tokens_per_second"]["median"],
            "decode": figures["decode_tokens_per_second"]["median"]}


def quote(value: object) -> str:
    return "'" + str(value).replace("'", "'\\''") + "'"


def compare(model: Path, program: Path, folder: Path, args: argparse.Namespace) -> list[dict]:
    rows = []
    for threads in args.threads:
        runs = []
        for i in range(args.runs + 1):  # the first pair warms up
            print(f"{threads} thread(s): pair {i} of {args.runs}", file=sys.stderr)
            pair = (run_shoal(program, model, threads, args), run_llama(folder, model, threads, args))
            if i > 0:
                runs.append(pair)
        for phase in ("prefill", "decode"):
            shoal = [ours[phase] for ours, _ in runs]
            llama = [theirs[phase] for _, theirs in runs]
            ratios = sorted(ours[phase] / theirs[phase] for ours, theirs in runs)
            rows.append({"threads": threads, "phase": phase, "shoal": statistics.median(shoal),
                         "llama_cpp": statistics.median(llama), "ratio": statistics.median(ratios),
                         "ratio_min": ratios[0], "ratio_max": ratios[-1]})
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--shoal", type=Path, default=ROOT / "build/release/shoal", help="the program")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("-p", "--prompt-tokens", type=int, default=512)
    parser.add_argument("-n", "--answer-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs that count")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: debootstrap and a mount namespace")
    if not args.model.is_file():
        parser.error(f"{args.model}: no such file")
    if not args.shoal.is_file():
        parser.error(f"{args.shoal}: no such program: run ./dev build")
    return args


def main() -> None:
    args = parse_arguments()
    folder = prepare_peer()
    rows = compare(args.model.resolve(), args.shoal.resolve(), folder, args)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{args.model.name}, median of {args.runs} alternating runs, tokens a second")
    print(f"{'threads':>7}  {'phase':<8} {'Shoal':>9} {'llama.cpp':>10} {'ratio':>6}  (spread)")
    for row in rows:
        print(f"{row['threads']:>7}  {row['phase']:<8} {row['shoal']:>9.1f} {row['llama_cpp']:>10.1f} "
              f"{row['ratio']:>6.2f}  ({row['ratio_min']:.2f} to {row['ratio_max']:.2f})")


if __name__ == "__main__":
    main()
