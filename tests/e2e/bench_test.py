"""`shoal bench` and `shoal trace`: figures that can be true, in both forms."""

import json
import re
import tempfile
import unittest
from pathlib import Path

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

    def test_links_are_measured_beside_the_bare_exchange(self):
        for link in ("shm", "tcp"):
            with self.subTest(link=link):
                result = self.succeed_json("bench", "fabric", "--link", link, "--rounds", "200")
                for kind in ("one_way", "all_reduce"):
                    for entry in result[kind]:
                        self.assertGreater(entry["seconds"]["median"], 0)
                        self.assertLessEqual(entry["seconds"]["median"], entry["seconds"]["p99"])
                for entry in result["all_reduce"]:
                    self.assertGreater(entry["bare_seconds"]["median"], 0)
                    self.assertGreater(entry["single_seconds"]["p99"], 0)
                self.assertGreater(result["stream_bytes_per_second"], 1e6)
        text = self.succeed("bench", "fabric", "--nodes", "3", "--rounds", "50")
        self.assertIn("all-reduce", text)

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
