"""A node that dies or stops in the middle of an answer: an error that names it, and nothing left.

SHOAL_KILL_RUNS sets how often each way of dying is tried on each link (2 unless set).
"""

import collections
import os
import select
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness

RUNS = int(os.environ.get("SHOAL_KILL_RUNS", "2"))
SECONDS_MAX = 2.0  # the promise; nothing else of the tests runs meanwhile
# Looks at the threads of an idle chat.
SAMPLES = 40


class KillTest(harness.Case):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def check_nothing_is_left(self, footprint):
        """No process of the run, none of its memory or ports, no file in its folder."""
        # A process that ends loses its environment, by which it is known, before its sockets.
        self.wait_until(lambda: not footprint.left(), "the nodes and what they held to go")
        self.assertEqual(footprint.left(), [])
        self.assertEqual(os.listdir(self.temporary.name), [])

    def start(self, footprint, *options):
        process = subprocess.Popen(
            [harness.SHOAL, "run", harness.demo_model(), "Write a long story.", "--ignore-end",
             "--quiet", *options],
            env={**os.environ, "TMPDIR": self.temporary.name, **footprint.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def wait_for_text(self, process):
        self.assertTrue(select.select([process.stdout], [], [], 60)[0], "no answer")
        self.assertTrue(os.read(process.stdout.fileno(), 1), "no answer")

    def fell(self, link, nodes, how, victim):
        """One run in which a node is hit; the seconds until the program ended."""
        footprint = harness.Footprint()
        process = self.start(footprint, "--nodes", str(nodes), "--link", link)
        self.wait_for_text(process)
        self.check_footprint(footprint.look(), nodes, link)
        children = sorted(harness.children_of(process.pid))
        self.assertEqual(len(children), nodes - 1)
        target = children[victim - 1]
        os.kill(target, how)
        start = time.monotonic()
        code = self.wait_while_draining(process)
        seconds = time.monotonic() - start
        errors = process.stderr.read().decode()
        self.assertEqual(code, 1, errors)
        self.assertIn(f"node-{victim}", errors)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.check_nothing_is_left(footprint)
        return seconds

    def check_footprint(self, footprint, nodes, link):
        """What will be looked for in the end is what is there now."""
        self.assertEqual(len(footprint.processes()), nodes)
        names = {kind for kind, _ in footprint.objects}
        self.assertIn("socket", names)
        self.assertEqual("/memfd" in names, link == "shm")

    def wait_while_draining(self, process):
        deadline = time.monotonic() + 60
        while process.poll() is None:
            self.assertLess(time.monotonic(), deadline, "the program did not end")
            if select.select([process.stdout], [], [], 0.02)[0]:
                os.read(process.stdout.fileno(), 65536)
        return process.returncode

    def check(self, how, nodes, victim):
        for link in ("shm", "tcp"):
            times = []
            for run in range(RUNS):
                with self.subTest(link=link, run=run):
                    times.append(self.fell(link, nodes, how, victim))
            print(f"{signal.Signals(how).name} of node {victim} of {nodes} over {link}: "
                  f"{len(times)} runs, slowest end after {max(times, default=0):.2f} s", flush=True)
            self.assertLess(max(times, default=0), SECONDS_MAX)

    def test_a_killed_node_ends_the_run_with_its_name(self):
        self.check(signal.SIGKILL, nodes=2, victim=1)

    def test_a_stopped_node_ends_the_run_with_its_name(self):
        self.check(signal.SIGSTOP, nodes=2, victim=1)

    def test_of_three_nodes_the_dead_one_is_named(self):
        self.check(signal.SIGKILL, nodes=3, victim=2)

    def test_nodes_end_with_a_killed_rank_0(self):
        for link in ("shm", "tcp"):
            footprint = harness.Footprint()
            process = self.start(footprint, "--nodes", "3", "--link", link)
            self.wait_for_text(process)
            self.check_footprint(footprint.look(), 3, link)
            process.kill()
            process.wait()
            self.check_nothing_is_left(footprint)


class IdleTest(harness.Case):
    def test_the_threads_of_a_waiting_chat_sleep(self):
        process = subprocess.Popen([harness.SHOAL, "run", harness.demo_model(), "--nodes", "2",
                                    "-n", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            self.assertTrue(select.select([process.stdout], [], [], 60)[0])
            everyone = [process.pid, *harness.children_of(process.pid)]
            self.assertEqual(len(everyone), 2)
            # The answer of four tokens is over at some time; then everybody sleeps.
            self.wait_until(lambda: not self.busy_threads(everyone), "the threads to sleep", 60)
        finally:
            process.stdin.close()
            process.wait(30)
            process.stdout.close()

    def busy_threads(self, pids):
        """Those that mostly run. Liveness wakes a thread for microseconds; one that spins is always
        seen running."""
        running = collections.Counter()
        for _ in range(SAMPLES):
            running.update(thread for pid in pids for thread in self.running_threads(pid))
            time.sleep(0.05)
        return [thread for thread, seen in running.items() if seen > SAMPLES // 2]

    @staticmethod
    def running_threads(pid):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "R":
                yield task.name


if __name__ == "__main__":
    unittest.main()
