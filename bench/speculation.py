#!/usr/bin/env python3
"""Measures what drafted tokens bring: `shoal serve --speculation ngram` beside `off`.

    bench/speculation.py                       # smollm2, both kinds of text, 1 stream and 8
    bench/speculation.py MODEL --streams 1 --runs 5 --temperature 0.7

Both servers run at the same time and are asked in turn, so that a machine's drift meets both. For
each kind of text: the tokens of the answers per second (medians of the runs with their spread), the
ratio run by run, and which share of the drafted tokens was right. The answers must be the same.
"""
import argparse
import json
import re
import shlex
import statistics
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CODE = """class Harbour:
    def __init__(self, name, berths):
        self.name = name
        self.berths = berths
        self.ships = []

    def is_full(self):
        return len(self.ships) >= self.berths

    def arrive(self, ship):
        if self.is_full():
            raise ValueError(f"{self.name} is full, {ship} must wait")
        self.ships.append(ship)

    def leave(self, ship):
        if ship not in self.ships:
            raise ValueError(f"{ship} is not in {self.name}")
        self.ships.remove(ship)
"""
NOTES = """- The ferry to the island leaves at nine in the morning and comes back at six in the evening.
- Tickets are sold at the pier; children under seven years of age travel free of charge.
- Dogs are allowed on deck, but not in the saloon, and they must be kept on a lead.
- In a storm the ferry does not sail; the harbour office knows by seven in the morning.
- Bicycles cost as much as a passenger, and there is room for twelve of them.
"""
TEXTS = {
    "repeating": [
        f"Add a docstring to every method and print the whole class again:\n\n{CODE}",
        f"Repeat these notes word for word:\n\n{NOTES}",
        f"Rename the class Harbour to Port and print all of the code:\n\n{CODE}",
        f"Number these notes and print all of them:\n\n{NOTES}",
    ],
    "free": [
        "Tell a long story about a lighthouse keeper who finds a letter in a bottle.",
        "Explain how a steam engine works to somebody who has never seen one.",
        "What should I think about when I plan a garden on a windy hill?",
        "Describe a market in the morning: its sounds, its colours and its people.",
    ],
}


class Server:
    def __init__(self, args: argparse.Namespace, speculation: str):
        self.process = subprocess.Popen(
            [args.shoal, "serve", args.model, "--port", "0", "--no-prefix-cache",
             "--speculation", speculation, *args.serve],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if match := re.search(r"base URL (\S+)/v1, model (\S+), API key", line):
                self.url, self.name = match.groups()
                return
        raise SystemExit(f"the server with --speculation {speculation} did not start")

    def ask(self, prompt: str, args: argparse.Namespace) -> tuple[str, int]:
        body = {"model": self.name, "messages": [{"role": "user", "content": prompt}], "seed": 1,
                "temperature": args.temperature, "max_tokens": args.answer_tokens}
        request = urllib.request.Request(self.url + "/v1/chat/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer = json.load(answer)
        return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]

    def counter(self, name: str) -> float:
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE).group(1))

    def run(self, prompts: list[str], args: argparse.Namespace) -> tuple[list[str], float]:
        """The answers to all prompts, at once, and their tokens per second."""
        start = time.monotonic()
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda prompt: self.ask(prompt, args), prompts))
        seconds = time.monotonic() - start
        return [text for text, _ in answers], sum(tokens for _, tokens in answers) / seconds


def spread(values: list[float], digits: int) -> str:
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f} to {max(values):.{digits}f})")


def compare(off: Server, ngram: Server, kind: str, streams: int, args: argparse.Namespace) -> str:
    names = [f"vllm:spec_decode_num_{what}_tokens_total" for what in ("draft", "accepted")]
    before = [ngram.counter(name) for name in names]
    speeds = {off: [], ngram: []}
    for run in range(args.runs):
        prompts = [TEXTS[kind][(run + i) % len(TEXTS[kind])] for i in range(streams)]
        texts = {}
        for server in (off, ngram) if run % 2 == 0 else (ngram, off):
            texts[server], speed = server.run(prompts, args)
            speeds[server].append(speed)
        if texts[off] != texts[ngram]:
            raise SystemExit(f"the answers differ:\n{texts[off]}\n{texts[ngram]}")
    drafted, accepted = (ngram.counter(name) - was for name, was in zip(names, before))
    ratios = [new / old for new, old in zip(speeds[ngram], speeds[off])]
    share = f"{accepted / drafted:.0%} of {drafted:.0f}" if drafted else "none"
    return (f"| {kind} | {streams} | {spread(speeds[off], 0)} | {spread(speeds[ngram], 0)} | "
            f"{spread(ratios, 2)} | {share} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--shoal", default=str(ROOT / "build/release/shoal"))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--answer-tokens", type=int, default=200)
    parser.add_argument("--serve", default="", metavar="OPTIONS", type=shlex.split,
                        help='more options of shoal serve, such as --serve="--nodes 2"')
    args = parser.parse_args()
    servers = []
    try:
        for speculation in ("off", "ngram"):
            servers.append(Server(args, speculation))
        print("| text | streams | off, tokens/s | ngram, tokens/s | ratio | accepted |")
        print("|---|---|---|---|---|---|")
        for kind in TEXTS:
            for streams in args.streams:
                print(compare(*servers, kind, streams, args), flush=True)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait(60)


if __name__ == "__main__":
    main()
