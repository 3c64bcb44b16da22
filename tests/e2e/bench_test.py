"""`shoal bench` and `shoal trace`: figures that can be true, in both forms."""

import json
import re
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import harness


def documented_phases():
    """The phases of a worker's time in the order in which ranks send them (docs/step_protocol.md)."""
    text = (harness.SOURCE / "docs/step_protocol.md").read_text(encoding="utf-8")
    return re.split(r",\s+", re.search(r"phases:\s+([a-z]+(?:,\s+[a-z]+)+)\.", text).group(1))


PHASES = documented_phases()


class BenchTest(harness.Case):
    def check_samples(self, samples):
        self.assertGreater(samples["p10"], 0)
        self.assertLessEqual(samples["p10"], samples["median"])
        self.assertLessEqual(samples["median"], samples["p90"])

    def test_a_model_is_measured_with_prefill_and_decode_apart(self):
        options = ("bench", "model", harness.demo_model(), "-p", "64", "-n", "16", "--repeats", "3",
                   "--nodes", "2", "--depth", "0,96")
        result = self.succeed_json(*options)
        self.assertEqual([entry["depth"] for entry in result["depths"]], [0, 96])
        for entry in result["depths"]:
            for phase in ("prefill", "decode"):
                self.check_samples(entry[phase]["tokens_per_second"])
                self.check_time(entry[phase]["time"])
            self.assertGreater(entry["decode"]["collective_operations"], 0)
            self.assertGreater(entry["decode"]["share_of_read_bandwidth"], 0)
            self.assertGreater(entry["prefill"]["share_of_float_peak"], 0)
        shallow, deep = (entry["decode"]["bytes_per_token"] for entry in result["depths"])
        self.assertEqual(deep - shallow, 96 * result["kv_bytes_per_token"])
        self.assertGreater(shallow, result["weight_bytes"])
        self.assertGreater(result["start_to_first_token_seconds"], result["load_seconds"])
        text = self.succeed(*options)
        self.assertEqual(result["kernels"], self.succeed_json("info")["kernels"])
        for words in ("prefill", "decode", "median", "not on this processor: ", "collectives over shm", "float32 peak",
                      "first token", "matmul", "decode at 96"):
            self.assertIn(words, text)

    def check_time(self, time):
        """Every phase has its share; work is there; and shares cannot add up to more than all."""
        self.assertEqual(list(time["shares"]), PHASES)
        self.assertGreater(time["shares"]["matmul"], 0)
        self.assertGreater(time["shares"]["collective"], 0)
        busy = sum(share for phase, share in time["shares"].items() if phase != "idle")
        self.assertLess(busy, 1.1)
        self.assertEqual([list(rank) for rank in time["worker_seconds_by_rank"]], [PHASES] * 2)

    def test_a_context_that_is_too_small_is_refused(self):
        self.fail_with("bench", "model", harness.demo_model(), "--depth", "100", "--ctx", "100",
                       code=2, says="--ctx 100 is less")

    def test_the_machine_is_measured_by_threads_and_type(self):
        result = self.succeed_json("bench", "machine", "--threads", "2", "--types", "F32,Q4_0")
        self.assertEqual([limits["threads"] for limits in result["limits"]], [1, 2])
        for limits in result["limits"]:
            self.assertGreater(limits["read_bytes_per_second"], 1e8)
            self.assertGreater(limits["float_operations_per_second"], 1e8)
        self.assertEqual([entry["type"] for entry in result["matmul"]], ["F32", "Q4_0"])
        for entry in result["matmul"]:
            self.assertEqual(len(entry["operations_per_second"]), 2)
            self.assertGreater(min(entry["operations_per_second"]), 1e7)
        self.assertEqual(result["processor"], self.succeed_json("info")["cpu"])
        text = self.succeed("bench", "machine", "--threads", "1", "--types", "Q8_0", "-q")
        for words in ("processor", "kernels", "not on this processor: ", "memory read",
                      "matrices of Q8_0"):
            self.assertIn(words, text)
        self.fail_with("bench", "machine", "--types", "Q9_9", says="Q9_9")


class FabricTest(harness.Case):
    """`shoal bench fabric`, as docs/fabric-benchmark.md describes it."""

    QUICK = ("bench", "fabric", "--seconds", "0.2")

    def check_spread(self, summary):
        self.assertEqual(list(summary), ["median", "p10", "p90", "p99", "max"])
        self.assertGreater(summary["p10"], 0)
        ordered = [summary[key] for key in ("p10", "median", "p90", "p99", "max")]
        self.assertEqual(ordered, sorted(ordered))

    def check_pair(self, pair, sizes):
        for key, figure in (("round_trip", "seconds"), ("stream", "bytes_per_second"),
                            ("both_ways", "bytes_per_second")):
            self.assertEqual([entry["bytes"] for entry in pair[key]], sizes)
            for entry in pair[key]:
                self.check_spread(entry[figure])
                self.assertGreater(entry["rounds"], 1)
                self.assertGreater(min(entry["cpu_seconds_per_message"]), 0)
                self.assertEqual(len(entry["cpu_seconds_per_message"]), 2)
        for entry in pair["round_trip"]:
            self.assertAlmostEqual(entry["one_way_seconds"]["p99"], entry["seconds"]["p99"] / 2)
        for entry in (*pair["stream"], *pair["both_ways"]):
            self.assertGreater(entry["overall_bytes_per_second"], 0)
            self.assertLess(entry["overall_bytes_per_second"], entry["bytes_per_second"]["max"] * 1.001)
        for entry in pair["stream"]:
            self.assertAlmostEqual(entry["messages_per_second"] * entry["bytes"],
                                   entry["bytes_per_second"]["median"], places=0)

    def test_links_of_three_nodes_stand_beside_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            plot = Path(folder) / "links.svg"
            result = self.succeed_json(*self.QUICK, "--link", "shm,tcp", "--nodes", "3", "--sizes",
                                       "4K,64,64", "--plot", plot)
            svg = ElementTree.fromstring(plot.read_text(encoding="utf-8"))
        self.assertEqual((result["nodes"], result["poll"], result["missing"]), (3, False, []))
        self.assertEqual([link["link"] for link in result["links"]], ["shm", "tcp"])
        for link in result["links"]:
            self.assertEqual([pair["ranks"] for pair in link["pairs"]], [[0, 1], [0, 2], [1, 2]])
            for pair in link["pairs"]:
                self.check_pair(pair, [64, 4096])
            for operation in ("all_reduce", "all_gather", "broadcast"):
                self.assertEqual(sorted({entry["bytes"] for entry in link[operation]}), [64, 4096])
                for entry in link[operation]:
                    self.check_spread(entry["seconds"])
                    # A root of a broadcast is done as soon as it has sent.
                    self.assertEqual("single_seconds" in entry, operation != "broadcast")
                    self.check_spread(entry.get("single_seconds", entry["seconds"]))
        algorithms = [{entry["algorithm"] for entry in link["all_reduce"]} for link in result["links"]]
        self.assertEqual(algorithms[1], {"chosen", "one-shot", "scatter-gather"})
        self.assertLess(algorithms[1], algorithms[0])  # shared memory has more ways
        self.check_plot(svg, ["shm", "tcp"])

    def check_plot(self, svg, links):
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(svg.tag, space + "svg")
        legend = [text.text for text in svg.iter(space + "text")]
        for link in links:
            for name in ("median", "p99", "one way", "both ways"):
                self.assertEqual(legend.count(f"{link}, {name}"), 1)
        curves = [line.get("points").split() for line in svg.iter(space + "polyline")]
        self.assertEqual([len(points) for points in curves], [2] * 4 * len(links))
        for first, second in curves:
            self.assertLess(float(first.split(",")[0]), float(second.split(",")[0]))

    def test_links_are_measured_beside_the_bare_exchange(self):
        for link in ("shm", "tcp"):
            with self.subTest(link=link):
                result = self.succeed_json("bench", "fabric", "--link", link, "--rounds", "40", "--sizes",
                                           "256,64K", "--operations", "all-reduce,stream")["links"][0]
                self.assertEqual(result["pairs"][0]["round_trip"], [], "was not asked for")
                self.assertEqual(result["broadcast"], [])
                for entry in result["all_reduce"]:
                    self.assertEqual("bare_seconds" in entry, entry["algorithm"] == "chosen")
                    self.check_spread(entry.get("bare_seconds", entry["seconds"]))
                for entry in result["pairs"][0]["stream"]:
                    self.assertGreater(entry["bytes_per_second"]["median"], 0)

    def test_data_beyond_the_bare_exchange_is_measured_without_it(self):
        result = self.succeed_json(*self.QUICK, "--link", "shm", "--sizes", "4K,17M", "--operations", "all-reduce")
        chosen = [entry for entry in result["links"][0]["all_reduce"] if entry["algorithm"] == "chosen"]
        self.assertEqual([(entry["bytes"] >> 10, "bare_seconds" in entry) for entry in chosen],
                         [(4, True), (17 << 10, False)])

    def test_ranks_can_poll_and_no_link_is_measured_twice(self):
        options = ("bench", "fabric", "--poll", "--rounds", "20", "--link", "tcp,shm,tcp", "--sizes", "64",
                   "--operations", "round-trip")
        result = self.succeed_json(*options)
        self.assertTrue(result["poll"])
        self.assertEqual([link["link"] for link in result["links"]], ["tcp", "shm"])
        self.assertEqual([link["pairs"][0]["round_trip"][0]["rounds"] for link in result["links"]], [20, 20])
        self.assertNotIn("ports", result["links"][0])
        self.assertIn("who waits polls", self.succeed(*options))

    def test_the_tables_name_links_sizes_and_operations(self):
        text = self.succeed(*self.QUICK, "--link", "tcp,shm", "--sizes", "64,1M", "--nodes", "3")
        for words in ("3 nodes", "tcp p50", "shm p99", "half of a round trip", "messages/s", "both ways",
                      "every pair over tcp", "all-reduce", "all-gather", "broadcast", "64 B", "1 MiB"):
            self.assertIn(words, text)

    def test_a_link_that_is_not_here_is_named_and_the_others_are_measured(self):
        """It is a failure where it was asked for by name."""
        if list(Path("/sys/class/infiniband").glob("*")):
            self.skipTest("this machine has an RDMA device")
        options = (*self.QUICK, "--sizes", "64", "--operations", "round-trip")
        for chosen, links, code, kind in ((("--link", "verbs,tcp"), ["tcp"], 1, ""),
                                          ((), ["shm", "tcp"], 0, "note: ")):
            done = harness.shoal(*options, *chosen, "--json")
            self.assertEqual(done.returncode, code)
            self.assertRegex(done.stderr, rf"\Ashoal: {kind}verbs was not measured: .+\n\Z")
            result = json.loads(done.stdout)
            self.assertEqual([link["link"] for link in result["links"]], links)
            self.assertEqual([one["link"] for one in result["missing"]], ["verbs"])
        self.fail_with(*options, "--link", "verbs", says="verbs: ")

    def test_what_cannot_be_measured_is_refused(self):
        for options, words in ((("--sizes", "0"), "--sizes"), (("--sizes", "1G"), "--sizes"),
                               (("--link", "ipx"), "--link"), (("--operations", "scan"), "--operations"),
                               (("--seconds", "0"), "--seconds"), (("--nodes", "1"), "--nodes"),
                               (("--operations", "all-reduce,broadcast", "--plot", "/tmp/no.svg"),
                                "--plot draws messages")):
            self.fail_with("bench", "fabric", *options, code=2, says=words)
        self.fail_with("bench", "fabric", "--plot", "/no/such/folder/a.svg", says="cannot write")


class TraceTest(harness.Case):
    def trace(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            told = self.succeed_json("trace", harness.demo_model(), "-o", path, "--nodes", "2",
                                     "--threads", "2", *options)
            trace = json.loads(path.read_text(encoding="utf-8"))
        spans = sum(event["ph"] == "X" for event in trace["traceEvents"])
        self.assertEqual(told, {"file": str(path), "ranks": 2, "workers": 4, "spans": spans,
                                "spans_dropped": 0, "seconds": told["seconds"]})
        self.assertGreater(told["seconds"], 0)
        return trace

    def check_tracks(self, trace, stage):
        """All ranks and workers are there; on each, nothing overlaps and time goes forward."""
        tracks = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                tracks.setdefault((event["pid"], event["tid"]), []).append(event)
                self.assertIn(event["name"], PHASES)
        self.assertEqual(set(tracks), {(rank, worker) for rank in (0, 1) for worker in (0, 1)})
        for events in tracks.values():
            end = 0
            for event in events:
                self.assertGreaterEqual(event["ts"], end - 0.002)  # rounding of nanoseconds
                self.assertGreaterEqual(event["dur"], 0)
                end = event["ts"] + event["dur"]
            layers = {event["args"]["layer"] for event in events if "args" in event}
            self.assertEqual(layers, set(range(30)))
            self.assertTrue({"matmul", "attention", "collective"}
                            <= {event["name"] for event in events if event["cat"] == stage})
        # One clock: the ranks work at the same time.
        spans = [(min(e["ts"] for e in events), max(e["ts"] for e in events))
                 for events in tracks.values()]
        self.assertLess(max(first for first, _ in spans), min(last for _, last in spans))
        self.assertEqual(min(first for first, _ in spans), 0)
        self.assertEqual(trace["otherData"]["clock_offset_ns_by_rank"], [0, 0])

    def test_decode_steps_are_traced_on_all_ranks(self):
        one = self.trace("--steps", "1", "--depth", "16")
        self.check_tracks(one, "decode")
        three = self.trace("--steps", "3", "--depth", "16")
        self.check_tracks(three, "decode")
        count = [sum(event.get("name") == "matmul" for event in trace["traceEvents"])
                 for trace in (one, three)]
        self.assertEqual(count[1], 3 * count[0])

    def test_a_prompt_is_traced(self):
        self.check_tracks(self.trace("--prompt-tokens", "64"), "prefill")

    def test_a_file_that_cannot_be_written_is_named(self):
        result = harness.shoal("trace", harness.demo_model(), "-o", "/no/such/folder/t.json")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "shoal: cannot write /no/such/folder/t.json: "
                                        "No such file or directory\n", "before anything is loaded")
        self.fail_with("trace", harness.demo_model(), "-o", "-", "--json", code=2, says="-o FILE")


if __name__ == "__main__":
    unittest.main()
