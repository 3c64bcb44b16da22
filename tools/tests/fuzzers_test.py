"""run_fuzzers: a fuzzer that breaks fails the run, and the others still run."""

import contextlib
import io
import sys
import unittest
from unittest import mock

import run_fuzzers
from planted_tree import PlantedTree

QUIET = "echo stat::number_of_executed_units: 42\n"
BREAKS = "echo the reason; exit 77\n"


class FuzzersTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)
        patch = mock.patch.object(run_fuzzers, "BUILD", self.tree.root)
        patch.start()
        self.addCleanup(patch.stop)

    def plant(self, name: str, body: str) -> None:
        self.tree.write(name, "#!/bin/sh\n" + body)
        (self.tree.root / name).chmod(0o755)

    def run_all(self, *arguments: str) -> tuple[int, str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), mock.patch.object(sys, "argv", ["x", *arguments]):
            code = run_fuzzers.main()
        return code, output.getvalue()

    def test_fuzzers_that_find_nothing_pass(self):
        self.plant("a_fuzz", QUIET)
        code, output = self.run_all("--seconds", "1")
        self.assertEqual(code, 0)
        self.assertIn("a_fuzz: 42 inputs", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 0 failed")

    def test_a_fuzzer_that_breaks_fails_the_run_and_shows_why(self):
        self.plant("a_fuzz", BREAKS)
        self.plant("b_fuzz", QUIET)
        code, output = self.run_all()
        self.assertEqual(code, 1)
        self.assertIn("the reason", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 1 failed")

    def test_time_is_shared_out_unless_one_is_named(self):
        says_time = "for a in $@; do case $a in -max_total_time=*) echo time $a;; esac; done\n" + QUIET
        for name in ("a_fuzz", "fuzz_step"):
            self.plant(name, says_time)
        self.assertEqual(self.run_all("--seconds", "60")[0], 0)
        log = self.tree.root / "fuzz_step.log"
        self.assertIn("time -max_total_time=30", log.read_text())
        self.assertIn("time -max_total_time=60", (self.tree.root / "a_fuzz.log").read_text())
        self.assertEqual(self.run_all("fuzz_step", "--seconds", "60")[0], 0)
        self.assertIn("time -max_total_time=60", log.read_text())

    def test_an_unknown_name_fails_and_names_the_known(self):
        self.plant("a_fuzz", QUIET)
        code, output = self.run_all("c_fuzz")
        self.assertEqual(code, 1)
        self.assertIn("a_fuzz", output)


if __name__ == "__main__":
    unittest.main()
