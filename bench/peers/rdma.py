#!/usr/bin/env python3
"""Measures Shoal over RDMA beside perftest, UCX and Open MPI, between two processes, in turn.

    sudo bench/peers/rdma.py                     # 5 turns, on the first active RDMA device
    sudo bench/peers/rdma.py --markdown
    sudo bench/peers/rdma.py --guest --json      # on soft-RoCE in an emulated guest, where there is no device

Latency is half of a round trip, bandwidth one way, all bytes over all of the time. Shoal's figures are those of
`shoal bench fabric --link verbs --poll`; the others' those of ib_send_lat, ib_send_bw and ucx_perftest on the
same port and GID, and of an all-reduce of Open MPI (all_reduce_mpi.c), over UCX and over libfabric's verbs, by
connections where it finds a way to make them, else by datagrams; which port libfabric takes is not checked. All poll: none yields or sleeps while it
waits. UCX is measured at its transport, rc_verbs, without its protocols above: active messages up to 4 KiB, as
they fit its segments, and RDMA writes above. The peers are Debian 12's packages (peer_root.py). Each turn runs
everything once; what is printed, to standard error after each turn too, is the median over the turns, with the
least and the most and the number of turns that gave a figure in brackets, and how Shoal stands to the best of
the others: by medians, and by the best turn of each, which a busy machine disturbs least. What fails is tried
once more; a peer that failed in the first turn is left out of the later ones.
"""
import argparse
import contextlib
import dataclasses
import functools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import peer_root

ROOT = Path(__file__).resolve().parents[2]
DEVICES = Path("/sys/class/infiniband")
PACKAGES = ["gcc", "libc6-dev", "openmpi-bin", "libopenmpi-dev", "perftest", "ucx-utils", "ibverbs-providers"]
LATENCY_SIZES = [64, 4096, 16384]
BANDWIDTH_SIZES = [4096, 65536, 1 << 20]
REDUCE_SIZES = [4096, 16384, 65536]
UCX_SHORT_MAX, UCX_SEGMENT_MAX = 64, 4096
PORT = 18515
COMMAND_S = 60
T = TypeVar("T")
# What a command's figures are called, the unit they are shown in, and whether more is better.
LATENCY, BANDWIDTH, REDUCE = "latency", "bandwidth", "all-reduce"
UNITS = {LATENCY: ("µs", 1e6), BANDWIDTH: ("MB/s", 1e-6), REDUCE: ("µs", 1e6)}


@dataclass
class Device:
    """A port, and the address that one of its GIDs stands for."""
    name: str
    port: int
    gid_index: int
    address: str


def ipv4_of_gid(gid: str) -> str | None:
    """The address in a GID such as 0000:0000:0000:0000:0000:ffff:c000:0201; None: another kind."""
    raw = bytes.fromhex(gid.strip().replace(":", ""))
    if len(raw) != 16 or raw[:12] != bytes(10) + b"\xff\xff":
        return None
    return socket.inet_ntoa(raw[12:])


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""  # entries of unused GIDs cannot be read


def active_devices(folder: Path = DEVICES) -> Iterator[Device]:
    """Ports that are up and have a RoCE v2 GID with an IPv4 address."""
    for port in sorted(folder.glob("*/ports/*")):
        if not read(port / "state").endswith("ACTIVE"):
            continue
        for index in range(256):
            address = ipv4_of_gid(read(port / "gids" / str(index)))
            if address and "v2" in read(port / "gid_attrs" / "types" / str(index)):
                yield Device(port.parent.parent.name, int(port.name), index, address)
                break


def numbers_after(text: str, first: int) -> list[float]:
    """The row of numbers that begins with `first`, as perftest prints its results."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == str(first) and all(re.fullmatch(r"[\d.]+", word) for word in words):
            return [float(word) for word in words]
    return []


def perftest_latency(text: str, size: int) -> float:
    """Seconds, from: bytes, iterations, min, max, typical, ..."""
    return numbers_after(text, size)[4] * 1e-6


def perftest_bandwidth(text: str, size: int) -> float:
    """Bytes per second, from: bytes, iterations, peak, average, rate; in Gb/s, as it is asked for."""
    return numbers_after(text, size)[3] * 1e9 / 8


def ucx_row(text: str) -> list[float]:
    """The last row of comma-separated numbers."""
    rows = [line.split(",") for line in text.splitlines() if re.fullmatch(r"[\d.]+(,[\d.]+){7,}", line.strip())]
    return [float(word) for word in rows[-1]]


def ucx_latency(text: str, _size: int) -> float:
    """Seconds, from: iterations, median µs, ..."""
    return ucx_row(text)[1] * 1e-6


def ucx_bandwidth(text: str, _size: int) -> float:
    """Bytes per second, from: iterations, three latencies, two bandwidths in MiB/s, the last over all, ..."""
    return ucx_row(text)[5] * 2**20


@dataclass
class Pair:
    """A peer's program that runs twice: as server, and as client with the server's address added."""
    peer: str
    kind: str
    command: Callable[[Device, int, int], list[str]]
    parse: Callable[[str, int], float]


def tried_twice(measure: Callable[[], T], is_good: Callable[[T], bool]) -> T:
    result = measure()
    return result if is_good(result) else measure()


def perftest(program: str, *options: str) -> Callable[[Device, int, int], list[str]]:
    return lambda device, size, count: [program, "-d", device.name, "-i", str(device.port), "-x",
                                        str(device.gid_index), "-s", str(size), "-n", str(count), "-F", "-p",
                                        str(PORT), *options]


def ucx(what: str) -> Callable[[Device, int, int], list[str]]:
    def command(device: Device, size: int, count: int) -> list[str]:
        test, layout = (f"am_{what}", "short" if size <= UCX_SHORT_MAX else "bcopy") \
            if size <= UCX_SEGMENT_MAX else (f"put_{what}", "zcopy")
        return ["env", f"UCX_IB_GID_INDEX={device.gid_index}", "ucx_perftest", "-d", f"{device.name}:{device.port}", "-x", "rc_verbs", "-t", test, "-D", layout,
                "-s", str(size), "-n", str(count), "-w", str(max(count // 10, 1)), "-f", "-v", "-p", str(PORT)]
    return command


PAIRS = [
    Pair("perftest", LATENCY, perftest("ib_send_lat"), perftest_latency),
    Pair("UCX", LATENCY, ucx("lat"), ucx_latency),
    Pair("perftest", BANDWIDTH, perftest("ib_send_bw", "--report_gbits"), perftest_bandwidth),
    Pair("UCX", BANDWIDTH, ucx("bw"), ucx_bandwidth),
]
# By what Open MPI moves bytes.
MPI: dict[str, Callable[[Device], list[str]]] = {
    "Open MPI over UCX": lambda device: [
        "--mca", "pml", "ucx", "--mca", "btl", "^openib", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
        "any", "-x", "UCX_TLS=rc,self", "-x", f"UCX_NET_DEVICES={device.name}:{device.port}", "-x",
        f"UCX_IB_GID_INDEX={device.gid_index}"],
    "Open MPI over libfabric": lambda _device: [
        "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
        "verbs;ofi_rxm,verbs;ofi_rxd"],
}
Figures = dict[tuple[str, str, int], list[float]]  # by kind, program and size: one per turn


def iterations(kind: str, size: int, at_most: int) -> int:
    """Fewer of large ones, so that every size takes about as long."""
    return max(20, at_most // max(1, size // (4096 if kind == LATENCY else 16384)))


class Peers:
    def __init__(self) -> None:
        self.root = peer_root.PeerRoot("rdma", "bookworm", PACKAGES, "usr/bin/ucx_perftest")
        self.root.mount("tmpfs", "tmp", "tmpfs")
        self.mpi = "/srv/all_reduce_rdma"
        source = Path(__file__).with_name("all_reduce_mpi.c").read_bytes()
        kept = self.root.folder / f"{self.mpi[1:]}.c"
        if not kept.exists() or kept.read_bytes() != source:
            kept.write_bytes(source)
            words = ["mpicc.openmpi", "-O3", "-o", self.mpi, f"{self.mpi}.c"]
            peer_root.check_run(self.root.run(*words), " ".join(words))

    def run_pair(self, pair: Pair, device: Device, size: int, count: int) -> float:
        """The figure; NaN where the pair does not run here to its end."""
        words = pair.command(device, size, count)
        server = self.root.command(*words)
        # The client comes once the server listens: perftest's client tries once only.
        client = ["sh", "-c", f"until grep -qi ':{PORT:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; "
                  "done; exec \"$@\"", "sh", *self.root.command(*words, device.address)]
        done = peer_root.run_together([server, client], timeout_s=COMMAND_S)
        try:
            return pair.parse(done[1].stdout, size)
        except (IndexError, ValueError):
            complain(f"{pair.peer}, {pair.kind} of {size} bytes", done)
            return float("nan")

    def run_mpi(self, name: str, device: Device, rounds: int) -> dict[int, float]:
        words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "osc", "^ucx", "--mca",
                 "mpi_yield_when_idle", "0", *MPI[name](device), self.mpi, str(rounds), *map(str, REDUCE_SIZES)]
        # It takes no host without a name.
        named = ["unshare", "--uts", "sh", "-c", "hostname localhost; exec \"$@\"", "sh"]
        done = peer_root.run_together([named + self.root.command(*words)], timeout_s=COMMAND_S)
        figures = {int(size): float(seconds)
                   for size, seconds in re.findall(r"^(\d+) (\d+\.\d+)$", done[0].stdout, re.MULTILINE)}
        if not figures:
            complain(name, done)
        return figures


def complain(what: str, done: list[subprocess.CompletedProcess]) -> None:
    said = " | ".join((one.stdout + one.stderr).strip()[-400:] for one in done)
    print(f"rdma.py: {what} does not run here: {said}", file=sys.stderr)


def shoal_figures(link: dict) -> Iterator[tuple[str, int, float]]:
    """Kind, size and figure of what `shoal bench fabric` says of a link."""
    for pair in link["pairs"]:
        yield from ((LATENCY, entry["bytes"], entry["one_way_seconds"]["median"])
                    for entry in pair["round_trip"] if entry["bytes"] in LATENCY_SIZES)
        yield from ((BANDWIDTH, entry["bytes"], entry["overall_bytes_per_second"])
                    for entry in pair["stream"] if entry["bytes"] in BANDWIDTH_SIZES)
    yield from ((REDUCE, entry["bytes"], entry["seconds"]["median"])
                for entry in link["all_reduce"] if entry["algorithm"] == "chosen")


def other_ports(ports: list[dict], device: Device) -> str | None:
    """What tells Shoal's ports from the peers' one; None: they are the same."""
    shoal = [(port["device"], port["number"], port["gid_index"]) for port in ports]
    peers = (device.name, device.port, device.gid_index)
    if shoal == [peers]:
        return None
    names = ["{} port {}, GID {}".format(*port) for port in (*shoal, peers)]
    return f"Shoal goes through {' and '.join(names[:-1])}; the peers through {names[-1]}"


def run_shoal(program: Path, device: Device, seconds: float) -> Iterator[tuple[str, int, float]]:
    """Kind, size and figure of one run; of messages and of sums each with their own sizes."""
    for operations, sizes in ((("round-trip", "stream"), sorted({*LATENCY_SIZES, *BANDWIDTH_SIZES})),
                              (("all-reduce",), REDUCE_SIZES)):
        command = [str(program), "bench", "fabric", "--link", "verbs", "--poll", "--json", "--seconds", str(seconds),
                   "--operations", ",".join(operations), "--sizes", ",".join(map(str, sizes))]

        def measure() -> dict | None:
            done = peer_root.run_together([command], timeout_s=COMMAND_S + 4 * seconds)
            if done[0].returncode == 0:
                return json.loads(done[0].stdout)["links"][0]
            complain(" ".join(command), done)
            return None

        link = tried_twice(measure, lambda link: link is not None)
        if link is None:
            continue
        if difference := other_ports(link["ports"], device):
            peer_root.fail(f"{difference}: take the other addresses away, so that one port is left")
        yield from shoal_figures(link)


def take_turn(peers: Peers, device: Device, args: argparse.Namespace, figures: Figures) -> None:
    is_first = not figures

    def note(kind: str, program: str, size: int, figure: float) -> None:
        if figure > 0:  # not for NaN
            figures.setdefault((kind, program, size), []).append(figure)

    def is_wanted(kind: str, program: str, size: int) -> bool:
        return is_first or (kind, program, size) in figures

    for kind, size, figure in run_shoal(args.shoal, device, args.seconds):
        note(kind, "Shoal", size, figure)
    for pair in PAIRS:
        for size in LATENCY_SIZES if pair.kind == LATENCY else BANDWIDTH_SIZES:
            if not is_wanted(pair.kind, pair.peer, size):
                continue
            count = iterations(pair.kind, size, args.iterations)
            figure = tried_twice(functools.partial(peers.run_pair, pair, device, size, count), lambda one: one > 0)
            note(pair.kind, pair.peer, size, figure)
    for name in MPI:
        if not is_wanted(REDUCE, name, REDUCE_SIZES[0]):
            continue
        run = functools.partial(peers.run_mpi, name, device, args.iterations // 4)
        for size, seconds in tried_twice(run, bool).items():
            note(REDUCE, name, size, seconds)


def spread(values: list[float], scale: float, turns: int) -> str:
    """The median, and in brackets the least, the most and how many turns gave a figure."""
    if not values:
        return f"(0/{turns})"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle * scale:.4g} ({low * scale:.3g} to {high * scale:.3g}, {len(values)}/{turns})"


def ratio_to_best(kind: str, figures: dict[str, float]) -> float | None:
    """Shoal's figure over that of the best other one."""
    others = [figure for program, figure in figures.items() if program != "Shoal"]
    if not others or "Shoal" not in figures:
        return None
    return figures["Shoal"] / (max if kind == BANDWIDTH else min)(others)


def rows_of(figures: Figures) -> list[dict]:
    """One row per kind and size: every program's turns, and how Shoal stands to the best other one."""
    rows = []
    for kind, sizes in ((LATENCY, LATENCY_SIZES), (BANDWIDTH, BANDWIDTH_SIZES), (REDUCE, REDUCE_SIZES)):
        best_turn = max if kind == BANDWIDTH else min
        for size in sizes:
            turns = {program: values for (one, program, of), values in figures.items() if (one, of) == (kind, size)}
            medians = {program: statistics.median(values) for program, values in turns.items()}
            best = {program: best_turn(values) for program, values in turns.items()}
            rows.append({"kind": kind, "bytes": size, "turns": turns, "medians": medians,
                         "to_best": ratio_to_best(kind, medians), "best_turn_to_best": ratio_to_best(kind, best)})
    return rows


def table_of(rows: list[dict], turns: int) -> list[list[str]]:
    """As text, of so many turns; empty cells are what a program is not asked for."""
    names = ["Shoal", "perftest", "UCX", *MPI]
    table = [["", "bytes", *names, "Shoal / best", "best turns"]]
    for row in rows:
        unit, scale = UNITS[row["kind"]]
        ratios = [f"{ratio:.2f}" if ratio else "" for ratio in (row["to_best"], row["best_turn_to_best"])]
        table.append([f"{row['kind']}, {unit}", str(row["bytes"]),
                      *(spread(row["turns"].get(name, []), scale, turns)
                        if name == "Shoal" or (name in MPI) == (row["kind"] == REDUCE) else "" for name in names),
                      *ratios])
    return table


def run_in_guest(arguments: list[str], args: argparse.Namespace) -> int:
    """The peers are installed here; the guest sees them, read-only."""
    peer_root.run_quietly([sys.executable, __file__, "--prepare"])
    guest = [sys.executable, str(ROOT / "tests/guest/guest.py"), "--processors", str(args.processors), "--memory",
             "1536", "--seconds", str(args.guest_seconds), "--env",
             f"XDG_CACHE_HOME={peer_root.cache_folder().parents[1]}", "--", "python3", __file__, *arguments,
             "--shoal", str(args.shoal)]
    return subprocess.run(guest, cwd=ROOT, check=False).returncode


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shoal", type=Path, default=ROOT / "build/release/shoal", help="the program")
    parser.add_argument("--runs", type=int, default=5, help="turns")
    parser.add_argument("--seconds", type=float, default=3, help="of one run of Shoal")
    parser.add_argument("--iterations", type=int, default=2000, help="of the smallest size")
    parser.add_argument("--guest", action="store_true", help="in the guest of tests/guest")
    parser.add_argument("--processors", type=int, default=4, help="of the guest")
    parser.add_argument("--guest-seconds", type=int, default=1500, help="at most")
    parser.add_argument("--prepare", action="store_true", help="install the peers, and end")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    args.shoal = args.shoal.resolve()
    if not args.prepare and not args.shoal.is_file():
        parser.error(f"{args.shoal}: no such program: run ./dev build")
    return args


def main() -> int:
    arguments = sys.argv[1:]
    args = parse_arguments(arguments)
    if args.guest:
        return run_in_guest([word for word in arguments if word != "--guest"], args)
    device = next(active_devices(), None)
    if device is None and not args.prepare:
        peer_root.fail("no active RDMA port with a RoCE v2 GID of an IPv4 address: see docs/rdma.md, or take --guest")
    peer_root.enter_private_namespace()
    peers = Peers()
    if args.prepare:
        return 0
    figures: Figures = {}
    for turn in range(args.runs):
        started = time.monotonic()
        take_turn(peers, device, args, figures)
        print(f"{device.name}: turn {turn + 1} of {args.runs}: {time.monotonic() - started:.0f} s", file=sys.stderr)
        if turn + 1 < args.runs:
            with contextlib.redirect_stdout(sys.stderr):
                peer_root.print_table(table_of(rows_of(figures), turn + 1), False, str.rjust)
    rows = rows_of(figures)
    if args.json:
        print(json.dumps({"device": dataclasses.asdict(device), "processors": os.cpu_count(), "turns": args.runs,
                          "rows": rows}, indent=1))
    else:
        peer_root.print_table(table_of(rows, args.runs), args.markdown, str.rjust)
    return 0


if __name__ == "__main__":
    sys.exit(main())
