"""`shoal bench`: figures that can be true, in both forms."""

import unittest

import harness


class BenchTest(harness.Case):
    def test_a_model_is_measured_with_prefill_and_decode_apart(self):
        options = ("bench", "model", harness.demo_model(), "-p", "64", "-n", "16", "--repeats", "3",
                   "--nodes", "2")
        result = self.succeed_json(*options)
        for phase in ("prefill", "decode"):
            speed = result[f"{phase}_tokens_per_second"]
            self.assertGreater(speed["p10"], 0)
            self.assertLessEqual(speed["p10"], speed["median"])
            self.assertLessEqual(speed["median"], speed["p90"])
        self.assertGreater(result["collective_operations"], 0)
        self.assertLess(result["collective_share"]["median"], 1)
        text = self.succeed(*options)
        for words in ("prefill", "decode", "median", "collectives over shm"):
            self.assertIn(words, text)

    def test_links_are_measured(self):
        for link in ("shm", "tcp"):
            with self.subTest(link=link):
                result = self.succeed_json("bench", "fabric", "--link", link, "--rounds", "200")
                for kind in ("one_way", "all_reduce"):
                    for entry in result[kind]:
                        self.assertGreater(entry["seconds"]["median"], 0)
                        self.assertLessEqual(entry["seconds"]["median"], entry["seconds"]["p99"])
                self.assertGreater(result["stream_bytes_per_second"], 1e6)
        self.assertIn("all-reduce", self.succeed("bench", "fabric", "--nodes", "3",
                                                 "--rounds", "50"))


if __name__ == "__main__":
    unittest.main()
