#!/usr/bin/env python3
"""Measures the all-reduce of Shoal, Open MPI, MPICH, UCX and gloo between two processes, in turn.

    sudo bench/peers/communication.py                    # shared memory and TCP loopback, 5 turns
    sudo bench/peers/communication.py --links tcp --markdown
    sudo bench/peers/communication.py --json > figures.json

Shoal's figures and its floors (a bare mapped-memory exchange, a bare busy-polling TCP exchange) are
those of `shoal bench fabric`; the peers are Debian 12's packages (peer_root.py), running the same
loop (all_reduce_mpi.c, all_reduce_gloo.cc). Each peer is tuned: it runs in several settings, and each
size counts in the best of them. UCX has no all-reduce of its own: it is measured as the transport
under Open MPI, and MPICH of Debian stands on it, too. gloo has TCP only.
"""
import argparse
import json
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import peer_root

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["gcc", "g++", "libc6-dev", "openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "libucx-dev",
            "libgloo-dev"]
SIZES = [4096, 8192, 16384, 32768, 65536, 1 << 20, 16 << 20]
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "-n", "2", "--bind-to", "core", "--mca",
            "mpi_yield_when_idle", "0"]
DOUBLING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "3"]
MPICH = ["mpirun.mpich", "-n", "2", "-bind-to", "core"]


@dataclass
class Setting:
    """One way to run a peer over one kind of link."""
    peer: str
    link: str
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


def open_mpi(link: str, name: str, *options: str) -> Setting:
    peer = "UCX" if "ucx" in options else "Open MPI"
    return Setting(peer, link, name, [*OPEN_MPI, *options, "/bench/all_reduce_openmpi"])


def ucx(link: str, name: str, tls: str, *options: str) -> Setting:
    # Left alone, UCX would spread over the loopback and the outer interface.
    devices = ["-x", "UCX_NET_DEVICES=lo"] if link == "tcp" else []
    anywhere = ["--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
    return open_mpi(link, name, "--mca", "pml", "ucx", *anywhere, "-x", f"UCX_TLS={tls}", *devices, *options)


def mpich(link: str, name: str, **env: str) -> Setting:
    return Setting("MPICH", link, name, [*MPICH, "/bench/all_reduce_mpich"], env)


VADER = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
TCP = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
SETTINGS = [
    open_mpi("shm", "vader", *VADER),
    open_mpi("shm", "vader, recursive doubling", *VADER, *DOUBLING),
    open_mpi("shm", "vader without cma", *VADER, "--mca", "btl_vader_single_copy_mechanism", "none"),
    open_mpi("tcp", "tcp", *TCP),
    open_mpi("tcp", "tcp, recursive doubling", *TCP, *DOUBLING),
    ucx("shm", "posix", "posix,self"),
    ucx("shm", "posix and cma, recursive doubling", "posix,cma,self", *DOUBLING),
    ucx("tcp", "tcp", "tcp,self"),
    ucx("tcp", "tcp, recursive doubling", "tcp,self", *DOUBLING),
    mpich("shm", "default", UCX_TLS="posix,self"),
    mpich("shm", "recursive doubling", UCX_TLS="posix,cma,self",
          MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM="recursive_doubling"),
    mpich("tcp", "default", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo", MPIR_CVAR_NOLOCAL="1"),
    mpich("tcp", "recursive doubling", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo", MPIR_CVAR_NOLOCAL="1",
          MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM="recursive_doubling"),
    Setting("gloo", "tcp", "ring", ["ring"]),
    Setting("gloo", "tcp", "bcube", ["bcube"]),
]


class Peers:
    def __init__(self) -> None:
        self.root = peer_root.PeerRoot("comm", "bookworm", PACKAGES, "usr/include/gloo/allreduce.h")
        self.folder = tempfile.TemporaryDirectory()
        self.root.mount(self.folder.name, "bench")
        here = Path(__file__).parent
        for name in ("all_reduce_mpi.c", "all_reduce_gloo.cc"):
            Path(self.folder.name, name).write_text((here / name).read_text(encoding="utf-8"), encoding="utf-8")
        self.build("mpicc.openmpi", "-O3", "-march=native", "-o", "/bench/all_reduce_openmpi",
                   "/bench/all_reduce_mpi.c")
        self.build("mpicc.mpich", "-O3", "-march=native", "-o", "/bench/all_reduce_mpich",
                   "/bench/all_reduce_mpi.c")
        self.build("g++", "-O3", "-march=native", "-o", "/bench/all_reduce_gloo", "/bench/all_reduce_gloo.cc",
                   "-lgloo", "-lpthread")

    def build(self, *words: str) -> None:
        peer_root.check_run(self.root.run(*words), " ".join(words))

    def measure(self, setting: Setting, rounds: int) -> dict[int, float]:
        """Median seconds by size; empty where the setting does not run here to its end."""
        done = peer_root.run_together(self.commands(setting, rounds), setting.env)
        failed = [one for one in done if one.returncode != 0]
        figures = parse(done[0].stdout)
        missing = missing_sizes(figures)
        if not failed and not missing:
            return figures
        why = failed[0].stderr.strip()[-300:] if failed else f"no figures of {missing} bytes"
        print(f"{setting.peer} ({setting.name}) does not run here: {why}", file=sys.stderr)
        return {}

    def commands(self, setting: Setting, rounds: int) -> list[list[str]]:
        if setting.peer != "gloo":
            return [self.root.command(*setting.command, rounds, *SIZES)]
        meeting = tempfile.mkdtemp(dir=self.folder.name)
        return [self.root.command("/bench/all_reduce_gloo", rank, f"/bench/{Path(meeting).name}",
                                  *setting.command, rounds, *SIZES) for rank in range(2)]


def parse(text: str) -> dict[int, float]:
    """Lines of a size and its seconds; whatever else a library says is left out."""
    lines = re.findall(r"^(\d+) (\d+\.\d+)$", text, re.MULTILINE)
    return {int(size): float(seconds) for size, seconds in lines}


def missing_sizes(figures: dict[int, float]) -> list[int]:
    return [size for size in SIZES if size not in figures]


def measure_shoal(program: Path, link: str, rounds: int) -> dict[str, dict[int, float]]:
    command = [str(program), "bench", "fabric", "--link", link, "--operations", "all-reduce", "--rounds", str(rounds),
               "--json"]
    done = peer_root.run_together([command])[0]
    links = json.loads(peer_root.check_run(done, " ".join(command)))["links"]
    entries = [entry for entry in links[0]["all_reduce"] if entry["algorithm"] == "chosen"]
    figures = {name: {entry["bytes"]: entry[key]["median"] for entry in entries if key in entry}
               for name, key in (("Shoal", "seconds"), ("bare", "bare_seconds"))}
    for name, one in figures.items():
        if missing_sizes(one):
            peer_root.fail(f"{' '.join(command)} has no figures of {missing_sizes(one)} bytes ({name})")
    return figures


def measure_link(link: str, peers: Peers, args: argparse.Namespace) -> list[dict]:
    settings = [setting for setting in SETTINGS if setting.link == link]
    samples: dict[tuple[str, str], list[dict[int, float]]] = {}
    for turn in range(args.runs):
        print(f"{link}: turn {turn + 1} of {args.runs}", file=sys.stderr)
        for name, figures in measure_shoal(args.shoal, link, args.rounds).items():
            samples.setdefault((name, ""), []).append(figures)
        for setting in settings:
            figures = peers.measure(setting, args.rounds)
            if figures:
                samples.setdefault((setting.peer, setting.name), []).append(figures)
    return [row_of(link, size, samples) for size in SIZES]


def row_of(link: str, size: int, samples: dict) -> dict:
    """Of every program the best setting's median over the turns, in seconds."""
    best: dict[str, tuple[float, str]] = {}
    for (name, setting), turns in samples.items():
        median = statistics.median(turn[size] for turn in turns)
        if name not in best or median < best[name][0]:
            best[name] = (median, setting)
    ratios = sorted(ours[size] / bare[size]
                    for ours, bare in zip(samples[("Shoal", "")], samples[("bare", "")]))
    return {"link": link, "bytes": size, "seconds": {name: median for name, (median, _) in best.items()},
            "settings": {name: setting for name, (_, setting) in best.items() if setting},
            "to_bare": statistics.median(ratios), "to_bare_min": ratios[0], "to_bare_max": ratios[-1]}


def cells(row: dict, names: list[str]) -> list[str]:
    others = [seconds for name, seconds in row["seconds"].items() if name not in ("Shoal", "bare")]
    lead = min(others) / row["seconds"]["Shoal"] if others else 0
    return [row["link"], f"{row['bytes'] >> 10} KiB",
            *(f"{row['seconds'][name] * 1e6:.3g}" if name in row["seconds"] else "" for name in names),
            f"{row['to_bare']:.2f} ({row['to_bare_min']:.2f} to {row['to_bare_max']:.2f})", f"{lead:.2f}"]


def show(rows: list[dict], markdown: bool) -> None:
    names = ["Shoal", "bare", "Open MPI", "MPICH", "UCX", "gloo"]
    table = [["link", "bytes", *(f"{name}, µs" for name in names), "Shoal / bare (spread)",
              "best peer / Shoal"], *(cells(row, names) for row in rows)]
    peer_root.print_table(table, markdown, str.rjust)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shoal", type=Path, default=ROOT / "build/release/shoal", help="the program")
    parser.add_argument("--links", nargs="+", choices=["shm", "tcp"], default=["shm", "tcp"])
    parser.add_argument("--rounds", type=int, default=1000, help="of each small size")
    parser.add_argument("--runs", type=int, default=5, help="turns")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.shoal = args.shoal.resolve()
    if not args.shoal.is_file():
        parser.error(f"{args.shoal}: no such program: run ./dev build")
    return args


def main() -> None:
    args = parse_arguments()
    peer_root.enter_private_namespace()
    peers = Peers()
    rows = [row for link in args.links for row in measure_link(link, peers, args)]
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows, args.markdown)


if __name__ == "__main__":
    main()
