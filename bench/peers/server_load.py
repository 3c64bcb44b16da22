#!/usr/bin/env python3
"""Measures `shoal serve` and llama.cpp's server under the same load, in alternating runs.

    sudo bench/peers/server_load.py MODEL.gguf                   # 1, 8 and 32 streams, 3 pairs of runs
    sudo bench/peers/server_load.py MODEL.gguf --decode --runs 5 --markdown
    sudo bench/peers/server_load.py MODEL.gguf --streams 32 --seconds 60 --prompts 50 1500 --only shoal

Each stream asks one question after another over HTTP, with prompts of different length and beginning
(no prefix is shared), and reads the answer as server-sent events. Counted are the tokens that arrive
in the seconds of a run, after a warm-up; the longest time that a stream waits between two events; and
the time to the first. With --decode each stream asks once, and what counts is the time in which all
answer: from the last of the first events to the first of the last ones, without any prompt. An event
may carry several tokens: characters are counted, and turned into tokens by what the servers say that
whole answers had. Both servers have the same slots, context and threads, and both are driven by this
script on the same machine. For how speed grows with streams, give --shoal-options=--speculation=off:
one stream leaves more room for drafts than many. llama.cpp is Debian's package (peer_root.py).
"""
import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import peer_root

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "tests/data/smollm2/perplexity.txt"
CHARACTERS_PER_TOKEN = 4
START_S = 120
GAP_S = 60  # without a byte for so long, a request has failed


@dataclass
class Answer:
    asked: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # when, how many characters
    tokens: int = 0  # of the whole answer, once it has ended


@dataclass
class Load:
    """What came of one run."""
    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Server:
    """A server process on a free port; ended with the block."""

    def __init__(self, name: str, command: list[str], port: int):
        self.name, self.command, self.port = name, command, port

    def __enter__(self):
        self.log = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        self.model = self.served_model()
                        return self
            if self.log.poll() is not None or time.monotonic() > end:
                self.__exit__()
                peer_root.fail(f"{self.name} did not start: {' '.join(self.command)}")
            time.sleep(0.2)

    def served_model(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5) as answer:
            return json.load(answer)["data"][0]["id"]

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.log.pid, signal.SIGKILL)
        self.log.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shoal_server(args: argparse.Namespace) -> Server:
    port = free_port()
    words = ["--port", port, "--threads", args.threads, "--sessions", max(args.streams), "--cache",
             args.context, *args.shoal_options]
    return Server("shoal", [str(args.shoal), "serve", str(args.model), *map(str, words)], port)


def llama_server(args: argparse.Namespace) -> Server:
    port = free_port()
    words = ["--port", port, "-t", args.threads, "-np", max(args.streams), "-c", args.context,
             "--no-webui", *args.llama_options]
    if args.llama_server:
        return Server("llama.cpp", [args.llama_server, "-m", str(args.model), *map(str, words)], port)
    root = peer_root.PeerRoot("testing", "testing", ["llama.cpp-tools", "llama.cpp-tools-extra"],
                              "usr/bin/llama-server")
    root.mount(args.model.parent, "served")
    return Server("llama.cpp", root.command("llama-server", "-m", f"/served/{args.model.name}", *words), port)


class Questions:
    """Prompts that begin differently, so that no cache knows them."""

    def __init__(self, shortest: int, longest: int, seed: int):
        self.text = re.sub(r"\s+", " ", TEXT.read_text(encoding="utf-8"))
        self.range = shortest, longest
        self.random = random.Random(seed)
        self.number = itertools.count(seed * 1000)

    def next(self) -> str:
        length = self.random.randint(*self.range) * CHARACTERS_PER_TOKEN
        begin = self.random.randrange(max(1, len(self.text) - length))
        return f"Text {next(self.number)}: " + self.text[begin:begin + length]


def read_event(line: bytes, answer: Answer, when: float) -> None:
    if not line.startswith(b"data: {"):
        return
    event = json.loads(line[len(b"data: "):])
    text = "".join(choice.get("delta", {}).get("content") or "" for choice in event.get("choices", []))
    if text:
        answer.arrivals.append((when, len(text)))
    if usage := event.get("usage"):
        answer.tokens = usage["completion_tokens"]


async def ask(server: Server, question: str, answer_tokens: int, load: Load) -> None:
    body = json.dumps({"model": server.model, "messages": [{"role": "user", "content": question}],
                       "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
                       "max_tokens": answer_tokens, "ignore_eos": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = Answer(time.monotonic())
        load.answers.append(answer)
        status = await asyncio.wait_for(reader.readline(), GAP_S)
        if b" 200 " not in status:
            rest = await asyncio.wait_for(reader.read(4096), GAP_S)
            load.errors.append((status + rest)[:300].decode(errors="replace"))
            return
        while line := await asyncio.wait_for(reader.readline(), GAP_S):
            read_event(line, answer, time.monotonic())
    finally:
        writer.close()


async def drive(server: Server, streams: int, args: argparse.Namespace, seed: int) -> Load:
    load = Load()
    end = time.monotonic() + args.warm_up + args.seconds

    async def stream(number: int) -> None:
        questions = Questions(*args.prompts, seed=(seed * 1000 + streams) * 1000 + number)
        while time.monotonic() < end and len(load.errors) < 10:
            try:
                await ask(server, questions.next(), args.answer_tokens, load)
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                load.errors.append(f"{type(error).__name__}: {error}")
            if args.decode:
                return

    tasks = [asyncio.create_task(stream(i)) for i in range(streams)]
    await asyncio.wait(tasks, timeout=None if args.decode else args.warm_up + args.seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return load


def counted_window(load: Load, begin: float, args: argparse.Namespace) -> tuple[float, float]:
    if not args.decode:
        return begin + args.warm_up, begin + args.warm_up + args.seconds
    answers = [answer.arrivals for answer in load.answers if answer.arrivals]
    return (max((arrivals[0][0] for arrivals in answers), default=begin),
            min((arrivals[-1][0] for arrivals in answers), default=begin))


def tokens_per_character(load: Load) -> float:
    ended = [answer for answer in load.answers if answer.tokens > 0 and answer.arrivals]
    characters = sum(count for answer in ended for _, count in answer.arrivals)
    return sum(answer.tokens for answer in ended) / characters if characters else 0.0


def waits(answer: Answer, window: tuple[float, float]) -> list[float]:
    """Between its events in the window; one that has begun and not ended waits until the window's end."""
    begin, end = window
    times = [when for when, _ in answer.arrivals if when <= end]
    if times and not answer.tokens:
        times.append(end)
    return [when - before for before, when in itertools.pairwise(times) if when > begin]


def figures(load: Load, window: tuple[float, float]) -> dict:
    begin, end = window
    characters = sum(count for answer in load.answers for when, count in answer.arrivals
                     if begin < when <= end)
    gaps = [gap for answer in load.answers for gap in waits(answer, window)]
    first = [answer.arrivals[0][0] - answer.asked for answer in load.answers if answer.arrivals]
    return {"tokens_per_second":
                characters * tokens_per_character(load) / (end - begin) if end > begin else 0.0,
            "gap_max": max(gaps, default=0.0),
            "gap_p99": sorted(gaps)[int(0.99 * len(gaps))] if gaps else 0.0,
            "first_median": statistics.median(first) if first else 0.0,
            "errors": load.errors[:3], "error_count": len(load.errors)}


def measure(args: argparse.Namespace) -> list[dict]:
    makers = {"shoal": shoal_server, "llama.cpp": llama_server}
    names = [name for name in makers if args.only in ("", name)]
    runs: dict[tuple[str, int], list[dict]] = {}
    for run in range(args.runs):
        for name in names:
            print(f"run {run + 1} of {args.runs}: {name}", file=sys.stderr)
            with makers[name](args) as server:
                for streams in args.streams:
                    begin = time.monotonic()
                    load = asyncio.run(drive(server, streams, args, seed=run + 1))
                    of_run = figures(load, counted_window(load, begin, args))
                    runs.setdefault((name, streams), []).append(of_run)
    return [row_of(name, streams, runs) for streams in args.streams for name in names]


def row_of(name: str, streams: int, runs: dict) -> dict:
    mine = runs[name, streams]
    row = {"server": name, "streams": streams, "error_count": sum(run["error_count"] for run in mine),
           "errors": [error for run in mine for error in run["errors"]][:3]}
    for key in ("tokens_per_second", "gap_p99", "first_median"):
        row[key] = statistics.median(run[key] for run in mine)
    row["gap_max"] = max(run["gap_max"] for run in mine)
    if name == "shoal" and ("llama.cpp", streams) in runs:
        ratios = sorted(ours["tokens_per_second"] / theirs["tokens_per_second"]
                        for ours, theirs in zip(mine, runs["llama.cpp", streams])
                        if theirs["tokens_per_second"] > 0)
        row["ratio"] = [statistics.median(ratios), ratios[0], ratios[-1]] if ratios else None
    return row


def show(rows: list[dict], markdown: bool) -> None:
    one = {row["server"]: row["tokens_per_second"] for row in rows if row["streams"] == 1}
    table = [["streams", "server", "tok/s", "x one stream", "ratio (spread)", "longest gap, s", "p99 gap, s",
              "first token, s", "errors"]]
    for row in rows:
        ratio = row.get("ratio")
        scale = row["tokens_per_second"] / one[row["server"]] if one.get(row["server"]) else None
        table.append([str(row["streams"]), row["server"], f"{row['tokens_per_second']:.0f}",
                      f"{scale:.2f}" if scale else "",
                      f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else "",
                      f"{row['gap_max']:.2f}", f"{row['gap_p99']:.3f}", f"{row['first_median']:.2f}",
                      str(row["error_count"])])
    peer_root.print_table(table, markdown, str.rjust)
    for row in rows:
        for error in row["errors"]:
            print(f"{row['server']}, {row['streams']} streams: {error}", file=sys.stderr)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a GGUF file with a chat template")
    parser.add_argument("--shoal", type=Path, default=ROOT / "build/release/shoal", help="the program")
    parser.add_argument("--llama-server", help="of another build of llama.cpp")
    parser.add_argument("--only", default="", choices=("shoal", "llama.cpp"), help="measure one of them")
    parser.add_argument("--decode", action="store_true", help="one answer of each stream, all at once")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompts", type=int, nargs=2, default=[50, 50], metavar=("MIN", "MAX"),
                        help="tokens of a prompt, about")
    parser.add_argument("-n", "--answer-tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=65536, help="positions of all slots together")
    parser.add_argument("--seconds", type=float, default=15, help="that count, of each run")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before them")
    parser.add_argument("--runs", type=int, default=3, help="pairs of runs")
    parser.add_argument("--shoal-options", nargs="*", default=[], help="more words for `shoal serve`")
    parser.add_argument("--llama-options", nargs="*", default=[], help="more words for llama-server")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for path in (args.model, args.shoal):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    args.model, args.shoal = args.model.resolve(), args.shoal.resolve()
    return args


def main() -> None:
    args = parse_arguments()
    if args.only != "shoal" and not args.llama_server:
        peer_root.enter_private_namespace()
    rows = measure(args)
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows, args.markdown)


if __name__ == "__main__":
    main()
