"""rdma: what peers print becomes figures; devices are found by their GIDs; ratios go the right way."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rdma

LATENCY = """ Dual-port       : OFF
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%   99.9%
 64      1000          13.02          77.00        14.45               15.10          2.11   20.00   77.00
"""
BANDWIDTH = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             0.80               0.40                   0.000763
"""
UCX = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 100,73.500,80.0,90.0,3.58,4.00,916,900
 200,75.000,81.0,91.0,3.60,2.00,917,901
"""


class ParseTest(unittest.TestCase):
    def test_perftest_says_the_typical_time_and_the_average_rate(self):
        self.assertAlmostEqual(rdma.perftest_latency(LATENCY, 64), 14.45e-6)
        self.assertAlmostEqual(rdma.perftest_bandwidth(BANDWIDTH, 65536), 50e6)

    def test_ucx_says_the_median_time_and_the_rate_over_all(self):
        self.assertAlmostEqual(rdma.ucx_latency(UCX, 64), 75e-6)
        self.assertAlmostEqual(rdma.ucx_bandwidth(UCX, 64), 2 * 2**20)

    def test_output_without_figures_is_an_error_of_its_kind(self):
        for parse in (rdma.perftest_latency, rdma.perftest_bandwidth, rdma.ucx_latency, rdma.ucx_bandwidth):
            with self.assertRaises((IndexError, ValueError)):
                parse("Unable to init the socket connection\n 64 bytes\n", 64)


class DeviceTest(unittest.TestCase):
    def port(self, folder: str, device: str, state: str, gids: list[tuple[str, str]]) -> None:
        port = Path(folder, device, "ports", "1")
        (port / "gids").mkdir(parents=True)
        (port / "gid_attrs" / "types").mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        for index, (gid, kind) in enumerate(gids):
            (port / "gids" / str(index)).write_text(f"{gid}\n")
            (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")

    def test_ports_that_are_up_are_found_by_the_address_in_a_gid(self):
        address = "0000:0000:0000:0000:0000:ffff:c000:0201"
        with tempfile.TemporaryDirectory() as folder:
            self.port(folder, "rxe0", "1: DOWN", [(address, "RoCE v2")])
            self.port(folder, "rxe1", "4: ACTIVE", [("fe80:0000:0000:0000:8c08:ebff:fee1:93ee", "RoCE v2"),
                                                    (address, "IB/RoCE v1"), (address, "RoCE v2")])
            self.port(folder, "rxe2", "4: ACTIVE", [("fe80:0000:0000:0000:8c08:ebff:fee1:93ee", "RoCE v2")])
            self.assertEqual(list(rdma.active_devices(Path(folder))), [rdma.Device("rxe1", 1, 2, "192.0.2.1")])
            self.assertEqual(list(rdma.active_devices(Path(folder, "none"))), [])


    def test_another_port_than_shoals_is_noticed(self):
        device = rdma.Device("rxe1", 1, 2, "192.0.2.1")
        port = {"device": "rxe1", "number": 1, "gid_index": 2, "mtu": 4096}
        self.assertIsNone(rdma.other_ports([port], device))
        for other in ({"device": "rxe0"}, {"number": 2}, {"gid_index": 1}):
            self.assertRegex(rdma.other_ports([{**port, **other}], device), "Shoal goes through .*the peers through rxe1")
        self.assertRegex(rdma.other_ports([port, {**port, "device": "rxe2"}], device), "rxe1 .* and rxe2 .*; the peers")


class ShoalTest(unittest.TestCase):
    LINK = {"link": "verbs", "ports": [{"device": "rxe1", "number": 1, "gid_index": 2, "mtu": 4096}],
            "pairs": [{"round_trip": [{"bytes": 64, "one_way_seconds": {"median": 2e-5}},
                                      {"bytes": 65536, "one_way_seconds": {"median": 2e-3}}],
                       "stream": [{"bytes": 65536, "bytes_per_second": {"median": 9e7},
                                   "overall_bytes_per_second": 5e7}]}],
            "all_reduce": [{"bytes": 4096, "algorithm": "one-shot", "seconds": {"median": 1e-4}},
                           {"bytes": 4096, "algorithm": "chosen", "seconds": {"median": 2e-4}}]}

    def test_bandwidth_is_that_of_all_bytes_over_all_of_the_time(self):
        self.assertEqual(list(rdma.shoal_figures(self.LINK)),
                         [(rdma.LATENCY, 64, 2e-5), (rdma.BANDWIDTH, 65536, 5e7), (rdma.REDUCE, 4096, 2e-4)])

    def run_program(self, folder: str, device: rdma.Device, fails: int) -> list[tuple[str, int, float]]:
        """A program in Shoal's place that fails so many times, then prints LINK."""
        Path(folder, "answer").write_text(json.dumps({"links": [self.LINK]}))
        Path(folder, "count").write_text("0")
        program = Path(folder, "shoal")
        program.write_text(f"#!/bin/sh\ncd {folder}\necho $(($(cat count) + 1)) >count\necho \"$@\" >>words\n"
                           f"[ $(cat count) -gt {fails} ] && exec cat answer\necho broken >&2; exit 1\n")
        program.chmod(0o755)
        with contextlib.redirect_stderr(io.StringIO()):
            return list(rdma.run_shoal(program, device, 1))

    def test_a_run_that_fails_is_tried_once_more(self):
        device = rdma.Device("rxe1", 1, 2, "192.0.2.1")
        for fails, count in ((0, 6), (1, 6), (2, 3), (4, 0)):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(len(self.run_program(folder, device, fails)), count)
                self.assertIn("--link verbs --poll --json", Path(folder, "words").read_text())

    def test_another_port_ends_the_comparison(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(SystemExit, "GID 2; the peers through"):
            self.run_program(folder, rdma.Device("rxe1", 1, 0, "192.0.2.1"), 0)

    def test_the_program_is_the_callers_in_the_guest_too(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("shoal").touch()
            args = rdma.parse_arguments(["--guest", "--shoal", "shoal"])
            with mock.patch("rdma.peer_root.run_quietly"), mock.patch("rdma.subprocess.run") as run:
                rdma.run_in_guest(["--shoal", "shoal"], args)
            inner = run.call_args.args[0]
            words = inner[inner.index(rdma.__file__) + 1:]
            self.assertEqual(rdma.parse_arguments(words).shoal, Path(folder, "shoal").resolve())
            self.assertTrue(Path(words[-1]).is_absolute())


class RowsTest(unittest.TestCase):
    def row(self, kind: str, size: int, figures: rdma.Figures) -> dict:
        return next(row for row in rdma.rows_of(figures) if (row["kind"], row["bytes"]) == (kind, size))

    def test_shoal_stands_to_the_best_of_the_others(self):
        figures = {(rdma.LATENCY, "Shoal", 64): [10.0, 30.0, 20.0], (rdma.LATENCY, "perftest", 64): [8.0, 90.0, 10.0],
                   (rdma.LATENCY, "UCX", 64): [40.0, 5.0, 40.0],
                   (rdma.BANDWIDTH, "Shoal", 65536): [9.0], (rdma.BANDWIDTH, "perftest", 65536): [6.0],
                   (rdma.BANDWIDTH, "UCX", 65536): [10.0]}
        latency = self.row(rdma.LATENCY, 64, figures)
        self.assertEqual((latency["to_best"], latency["best_turn_to_best"]), (2.0, 2.0))
        self.assertAlmostEqual(self.row(rdma.BANDWIDTH, 65536, figures)["to_best"], 0.9)

    def test_a_cell_says_how_many_turns_gave_a_figure(self):
        figures = {(rdma.LATENCY, "Shoal", 64): [1e-6, 3e-6, 2e-6], (rdma.LATENCY, "perftest", 64): [1e-6]}
        head, *rows = rdma.table_of(rdma.rows_of(figures), 3)
        self.assertEqual({len(row) for row in rows}, {len(head)})
        row = dict(zip(head, rows[0]))
        self.assertEqual((row["Shoal"], row["perftest"], row["UCX"], *(row[name] for name in rdma.MPI)),
                         ("2 (1 to 3, 3/3)", "1 (1 to 1, 1/3)", "(0/3)", "", ""))
        last = dict(zip(head, rows[-1]))
        self.assertEqual((last["Shoal"], last["perftest"], last["UCX"], *(last[name] for name in rdma.MPI)),
                         ("(0/3)", "", "", "(0/3)", "(0/3)"))

    def test_without_others_there_is_no_ratio(self):
        row = self.row(rdma.REDUCE, 16384, {(rdma.REDUCE, "Shoal", 16384): [1.0]})
        self.assertIsNone(row["to_best"])
        self.assertEqual(self.row(rdma.LATENCY, 64, {})["medians"], {})


if __name__ == "__main__":
    unittest.main()
