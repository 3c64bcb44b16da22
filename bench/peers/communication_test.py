"""communication, peer_root: settings that fail, say half of it or hang leave no traceback and no process."""

import contextlib
import io
import os
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

import communication
import peer_root

FIGURES = "\n".join(f"{size} 0.000123" for size in communication.SIZES)


def says(text: str) -> list[str]:
    return ["/bin/echo", text]


class MeasureTest(unittest.TestCase):
    """Settings that run on this system in place of one with the peers."""

    def measure(self, *commands: list[str]) -> tuple[dict[int, float], str]:
        peers = SimpleNamespace(commands=lambda setting, rounds: list(commands))
        setting = communication.Setting("a peer", "tcp", "a way", [])
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            figures = communication.Peers.measure(peers, setting, 10)
        return figures, errors.getvalue()

    def test_figures_are_found_among_what_a_library_says(self):
        figures, errors = self.measure(says(f"7 warnings\nhello 3.5\n{FIGURES}\n"))
        self.assertEqual(list(figures), communication.SIZES)
        self.assertEqual(errors, "")

    def test_a_setting_without_all_figures_is_left_out_with_its_name(self):
        figures, errors = self.measure(says(FIGURES.replace("1048576 ", "x ")))
        self.assertEqual(figures, {})
        self.assertEqual(errors, "a peer (a way) does not run here: no figures of [1048576] bytes\n")

    def test_a_rank_that_fails_fails_the_setting_with_its_reason(self):
        figures, errors = self.measure(says(FIGURES), ["sh", "-c", "echo no such device >&2; exit 3"])
        self.assertEqual(figures, {})
        self.assertIn("no such device", errors)

    def test_shoal_without_all_figures_is_an_error_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "shoal")
            program.write_text("#!/bin/sh\necho '{\"links\": [{\"all_reduce\": []}]}'\n")
            program.chmod(0o755)
            with self.assertRaises(SystemExit) as left:
                communication.measure_shoal(program, "tcp", 10)
        self.assertIn("has no figures of [4096,", left.exception.code)


class TogetherTest(unittest.TestCase):
    def test_what_hangs_is_ended_with_what_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder, "child")
            hangs = ["sh", "-c", f"sleep 600 & echo $! > {listed}.part; mv {listed}.part {listed}; wait"]
            # The other one ends once there is something to leave behind.
            other = ["sh", "-c", f"until [ -e {listed} ]; do sleep 0.01; done; echo done"]
            start = time.monotonic()
            done = peer_root.run_together([hangs, other], timeout_s=5)
            self.assertLess(time.monotonic() - start, 60)
            child = int(listed.read_text())
        self.assertNotEqual(done[0].returncode, 0)
        self.assertIn("still running after 5 s", done[0].stderr)
        self.assertEqual((done[1].returncode, done[1].stdout), (0, "done\n"))
        deadline = time.monotonic() + 20
        while self.is_alive(child):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @staticmethod
    def is_alive(pid: int) -> bool:
        """A zombie, which waits for its new parent only, is not."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_the_environment_is_handed_on(self):
        done = peer_root.run_together([["sh", "-c", "echo $SHOAL_X $HOME"]], {"SHOAL_X": "5"})[0]
        self.assertEqual(done.stdout, f"5 {os.environ.get('HOME', '')}\n")


if __name__ == "__main__":
    unittest.main()
