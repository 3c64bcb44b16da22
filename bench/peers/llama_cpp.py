#!/usr/bin/env python3
"""Measures Shoal and llama.cpp on the same model files in alternating runs, prefill and decode apart.

    sudo bench/peers/llama_cpp.py MODEL.gguf...          # 1 and 2 threads, 5 pairs of runs
    sudo bench/peers/llama_cpp.py MODEL.gguf --threads 1 -p 256 -n 64 --markdown
    sudo bench/peers/llama_cpp.py MODEL.gguf --json > figures.json

llama.cpp is Debian's package of the testing suite (peer_root.py); its library loads the fastest CPU
build for the processor at hand by itself. --llama-bench names another build to measure instead. Runs
alternate, since speed drifts on shared machines: the ratio is taken pair by pair, and the median of
the pairs shown with its spread. Both decode from an empty context, after a warm-up that does not
count. "start" is the time of a whole run that answers one token, from a warm page cache.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import peer_root

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("prefill", "decode", "start")
PROMPT = "the sea is wide and deep"


class Llama:
    def __init__(self, program: Path | None):
        self.root = None
        self.bench = [str(program)] if program else []
        self.folders: dict[Path, str] = {}
        if program is None:
            packages = ["llama.cpp-tools", "llama.cpp-tools-extra"]
            self.root = peer_root.PeerRoot("testing", "testing", packages, "usr/bin/llama-bench")

    def command(self, name: str, model: Path, *words: object) -> list[str]:
        if self.root is None:
            return [str(Path(self.bench[0]).with_name(name)), "-m", str(model), *map(str, words)]
        if model.parent not in self.folders:
            self.folders[model.parent] = f"models{len(self.folders)}"
            self.root.mount(model.parent, self.folders[model.parent])
        return self.root.command(name, "-m", f"/{self.folders[model.parent]}/{model.name}", *words)

    def speeds(self, model: Path, threads: int, args: argparse.Namespace) -> dict[str, float]:
        done = run(self.command("llama-bench", model, "-t", threads, "-p", args.prompt_tokens, "-n",
                                args.answer_tokens, "-r", 1, "-o", "json"))
        rows = json.loads(done)
        return {"decode" if row["n_gen"] else "prefill": row["avg_ts"] for row in rows}

    def start(self, model: Path, threads: int) -> float:
        return seconds(self.command("llama-completion", model, "-t", threads, "-n", 1, "-p", PROMPT,
                                    "-no-cnv", "--no-warmup", "-c", 512))


class Shoal:
    def __init__(self, program: Path):
        self.program = program

    def speeds(self, model: Path, threads: int, args: argparse.Namespace) -> dict[str, float]:
        done = run([str(self.program), "bench", "model", str(model), "--threads", str(threads), "-p",
                    str(args.prompt_tokens), "-n", str(args.answer_tokens), "--repeats", "1", "--json"])
        figures = json.loads(done)["depths"][0]
        return {"prefill": figures["prefill"]["tokens_per_second"]["median"],
                "decode": figures["decode"]["tokens_per_second"]["median"],
                "prefill_limit": figures["prefill"]["share_of_matmul_peak"],
                "decode_limit": figures["decode"]["share_of_read_bandwidth"]}

    def start(self, model: Path, threads: int) -> float:
        return seconds([str(self.program), "run", str(model), PROMPT, "--raw", "-n", "1", "-q", "--ctx", "512",
                        "--threads", str(threads)])


def run(command: list[str]) -> str:
    return peer_root.check_run(
        subprocess.run(command, capture_output=True, text=True, timeout=peer_root.TIMEOUT_S,
                       stdin=subprocess.DEVNULL), " ".join(command))


def seconds(command: list[str]) -> float:
    begin = time.monotonic()
    run(command)
    return time.monotonic() - begin


def measure(side: Shoal | Llama, model: Path, threads: int, args: argparse.Namespace) -> dict[str, float]:
    return side.speeds(model, threads, args) | {"start": side.start(model, threads)}


def compare(shoal: Shoal, llama: Llama, model: Path, args: argparse.Namespace) -> list[dict]:
    rows = []
    for threads in args.threads:
        pairs = []
        for i in range(args.warm_up + args.runs):
            print(f"{model.name}, {threads} thread(s): pair {i + 1} of {args.warm_up + args.runs}",
                  file=sys.stderr)
            pair = (measure(shoal, model, threads, args), measure(llama, model, threads, args))
            if i >= args.warm_up:
                pairs.append(pair)
        rows += [row_of(pairs, phase, model, threads) for phase in PHASES]
    return rows


def row_of(pairs: list[tuple[dict, dict]], phase: str, model: Path, threads: int) -> dict:
    """The ratio is above 1 where Shoal is the faster one."""
    ours = [mine[phase] for mine, _ in pairs]
    theirs = [other[phase] for _, other in pairs]
    ratios = sorted(a / b if phase != "start" else b / a for a, b in zip(ours, theirs))
    row = {"model": model.name, "threads": threads, "phase": phase, "shoal": statistics.median(ours),
           "llama_cpp": statistics.median(theirs), "ratio": statistics.median(ratios),
           "ratio_min": ratios[0], "ratio_max": ratios[-1]}
    if phase != "start":
        row["share_of_limit"] = statistics.median(mine[f"{phase}_limit"] for mine, _ in pairs)
    return row


def cells(row: dict) -> list[str]:
    unit = ".2f" if row["phase"] == "start" else ".1f"
    limit = {"prefill": "{:.0%} of its kernels' peak", "decode": "{:.0%} of read bandwidth"}.get(row["phase"], "")
    return [row["model"], str(row["threads"]), row["phase"] + (", s" if row["phase"] == "start" else ""),
            format(row["shoal"], unit), format(row["llama_cpp"], unit),
            f"{row['ratio']:.2f} ({row['ratio_min']:.2f} to {row['ratio_max']:.2f})",
            limit.format(row.get("share_of_limit", 0))]


def show(rows: list[dict], markdown: bool) -> None:
    table = [["model", "threads", "phase, tok/s", "Shoal", "llama.cpp", "ratio (spread)", "Shoal's limit"],
             *map(cells, rows)]
    peer_root.print_table(table, markdown, str.ljust)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="GGUF files")
    parser.add_argument("--shoal", type=Path, default=ROOT / "build/release/shoal", help="the program")
    parser.add_argument("--llama-bench", type=Path, help="of another build of llama.cpp")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("-p", "--prompt-tokens", type=int, default=512)
    parser.add_argument("-n", "--answer-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs that count")
    parser.add_argument("--warm-up", type=int, default=1, help="pairs before them")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for path in (*args.models, args.shoal):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    return args


def main() -> None:
    args = parse_arguments()
    if args.llama_bench is None:
        peer_root.enter_private_namespace()
    shoal, llama = Shoal(args.shoal.resolve()), Llama(args.llama_bench)
    rows = [row for model in args.models for row in compare(shoal, llama, model.resolve(), args)]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows, args.markdown)


if __name__ == "__main__":
    main()
