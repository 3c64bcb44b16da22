"""What the end-to-end tests share: the program, the demo model, and what a run leaves behind."""

import functools
import json
import os
import pty
import resource
import select
import signal
import subprocess
import time
import unittest
import uuid
from pathlib import Path

SHOAL = os.environ.get("SHOAL", "build/release/shoal")
SOURCE = Path(os.environ.get("SHOAL_SOURCE_DIR", Path(__file__).resolve().parents[2]))
DATA = SOURCE / "tests/data/smollm2"
TIMEOUT_S = 240


def shoal(*arguments, text_in=None, timeout=TIMEOUT_S, env=None, address_space=None):
    """Runs the program to its end; never raises because of its exit code.

    address_space: bytes that each of its processes may map.
    """
    def limit():
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    environment = {**os.environ, **(env or {})}
    return subprocess.run([SHOAL, *map(str, arguments)], input=text_in, capture_output=True,
                          text=True, encoding="utf-8", timeout=timeout, env=environment,
                          stdin=subprocess.DEVNULL if text_in is None else None, preexec_fn=limit)


@functools.cache
def demo_model():
    """The demo model's path; the first call on a machine fetches it, as a user would."""
    result = shoal("pull", "smollm2", timeout=1800)
    if result.returncode != 0:
        raise AssertionError(f"cannot fetch the demo model: {result.stderr}")
    return result.stdout.strip()


def make_model(path, *options):
    """Writes a model with random weights; what there is, `tools/make_model.py --help` says."""
    done = subprocess.run([SOURCE / "tools/make_model.py", *map(str, options), "-q", "-o", path],
                          capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise AssertionError(f"make_model.py {options}: {done.stderr}")
    return path


@functools.cache
def reference():
    return json.loads((DATA / "reference.json").read_text(encoding="utf-8"))


class Case(unittest.TestCase):
    """Assertions on what the program did."""

    def succeed(self, *arguments, **options):
        result = shoal(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"shoal {arguments}: {result.stderr}")
        return result.stdout

    def succeed_json(self, *arguments, **options):
        return json.loads(self.succeed(*arguments, "--json", **options))

    def fail_with(self, *arguments, says, code=1, **options):
        """The run ends with this exit code and one line of error that has the words."""
        result = shoal(*arguments, **options)
        self.assertEqual(result.returncode, code,
                         f"shoal {arguments}: {result.stdout}{result.stderr}")
        lines = [line for line in result.stderr.splitlines() if line.startswith("shoal: ")
                 and not line.startswith("shoal: note: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, lines[0])
        return lines[0]

    def wait_until(self, condition, what, timeout=20):
        deadline = time.monotonic() + timeout
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"waited in vain for {what}")
            time.sleep(0.01)


def children_of(pid):
    """Processes whose parent is pid, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def processes():
    """The ids of all processes, zombies left out."""
    return [int(entry.name) for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and is_alive(int(entry.name))]


class Footprint:
    """What one run of the program holds: its processes, their memory without a name, their sockets.

    Give `environment` to the run: its processes, also those that have lost their parent, are known
    by a mark in it. look() while it runs, then left() once it ended.
    """

    MARK = "SHOAL_TEST_RUN"

    def __init__(self):
        self.mark = f"{self.MARK}={uuid.uuid4()}"
        self.objects = {}

    @property
    def environment(self):
        return dict([self.mark.split("=")])

    def processes(self):
        return [pid for pid in processes() if self.mark.encode() in self._environment_of(pid)]

    def look(self):
        """Remembers what the run holds now."""
        for pid in self.processes():
            self.objects.update(self._held_by(pid))
        return self

    def left(self):
        """Processes of the run, and what was seen of it that anybody still holds, in words."""
        found = [f"process {pid}" for pid in self.processes()]
        for pid in processes():
            found += [f"{name} in process {pid}" for key, name in self._held_by(pid).items()
                      if key in self.objects]
        return found

    @staticmethod
    def _environment_of(pid):
        try:
            return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it ended, or is not ours
            return []

    @staticmethod
    def _held_by(pid):
        held = {}
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                name = os.readlink(entry)
                if name.startswith(("socket:", "/memfd:")):
                    held[name.split(":")[0], entry.stat().st_ino] = name
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                fields = line.split(maxsplit=5)  # addresses, rights, offset, device, inode, path
                if len(fields) == 6 and fields[5].startswith("/memfd:"):
                    held["/memfd", int(fields[4])] = fields[5]
        except OSError:
            pass
        return held


class Terminal:
    """The program on a pseudo-terminal, as a person sees it."""

    def __init__(self, *arguments, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})}
            os.execve(SHOAL, [SHOAL, *map(str, arguments)], environment)
        self.seen = ""
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def _read(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += chunk.decode("utf-8", "replace")
        return bool(chunk)

    def expect(self, text, timeout=60, after=0):
        """Waits until the text stands in what was shown from position `after` on."""
        deadline = time.monotonic() + timeout
        while text not in self.seen[after:]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not shown: {self.seen[after:][-2000:]!r}")
            self._read(0.1)
        return self.seen.index(text, after) + len(text)

    def expect_more(self, count, timeout=60):
        """Waits until so many more characters are shown than now."""
        deadline = time.monotonic() + timeout
        wanted = len(self.seen) + count
        while len(self.seen) < wanted:
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing more was shown: {self.seen[-2000:]!r}")
            self._read(0.1)

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self, timeout=30):
        """The exit code, once it ended; a negative signal number if a signal ended it."""
        deadline = time.monotonic() + timeout
        while self.status is None:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"still running: {self.seen!r}")
        return self.status
