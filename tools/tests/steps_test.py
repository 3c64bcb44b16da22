"""run_steps: what is counted, what goes on, what is not run."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import run_steps
from run_steps import Step

OK = [sys.executable, "-c", "print('fine')"]
BAD = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]


class StepsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=run_steps.repo.ROOT)
        self.addCleanup(folder.cleanup)
        patch = mock.patch.object(run_steps, "LOGS", Path(folder.name) / "logs")
        patch.start()
        self.addCleanup(patch.stop)

    def run_all(self, steps: list[Step]) -> tuple[int, str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = run_steps.run_all(steps)
        return code, output.getvalue()

    def test_all_well_ends_with_the_count(self):
        code, output = self.run_all([Step("a", [OK]), Step("b", [OK, OK])])
        self.assertEqual((code, output.splitlines()[-1]), (0, "2 passed, 0 failed"))

    def test_a_failure_shows_its_log_and_the_rest_goes_on(self):
        code, output = self.run_all([Step("a", [BAD]), Step("b", [OK])])
        self.assertEqual((code, output.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("the reason", output)

    def test_what_needs_a_failed_step_is_not_run_and_fails(self):
        code, output = self.run_all([Step("a", [BAD]), Step("b", [OK], after=("a",))])
        self.assertEqual((code, output.splitlines()[-1]), (1, "0 passed, 2 failed"))
        self.assertIn("not run: a failed", output)

    def test_a_step_over_its_time_is_stopped_and_fails(self):
        slow = [sys.executable, "-c", "import time; time.sleep(60)"]
        code, output = self.run_all([Step("a", [slow], timeout_s=1)])
        self.assertEqual(code, 1)
        self.assertIn("took over 1 s", output)

    def test_commands_at_once_all_end_and_one_failure_counts(self):
        meets = [sys.executable, "-c", "import os, sys, time\n"
                 "open(sys.argv[1], 'w').close()\n"
                 "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
                 "raise SystemExit(int(sys.argv[3]))"]
        here, there = run_steps.LOGS.parent / "here", run_steps.LOGS.parent / "there"
        for failures, code in (("0", 0), ("3", 1)):
            for file in (here, there):
                file.unlink(missing_ok=True)
            commands = [[*meets, str(here), str(there), failures], [*meets, str(there), str(here), "0"]]
            self.assertEqual(self.run_all([Step("a", commands, at_once=True, timeout_s=20)])[0], code)

    def test_a_missing_program_fails(self):
        self.assertEqual(self.run_all([Step("a", [["/no/such/program"]])])[0], 1)

    def test_counts_of_ctest_and_of_fuzzers_are_read(self):
        self.assertEqual(run_steps.counts("75% tests passed, 1 tests failed out of 4\n"), (3, 1))
        self.assertEqual(run_steps.counts("x\n3 passed, 2 failed\n"), (3, 2))
        self.assertIsNone(run_steps.counts("nothing here"))


if __name__ == "__main__":
    unittest.main()
