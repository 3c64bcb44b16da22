"""What the tests of `shoal serve` share: the server as a process, and clients' packages, pinned."""

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

import harness

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@functools.cache
def packages():
    """The folder with what requirements.txt names; the first call on a machine fetches it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache / "shoal" / "test_packages" / mark
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                            "--target", f"{work}/new", "-r", str(REQUIREMENTS)], check=True)
            shutil.move(f"{work}/new", folder)
    return str(folder)


sys.path.insert(0, packages())


class Server:
    """`shoal serve` on a free port, as a process of its own."""

    def __init__(self, *arguments, model=None, folder=None):
        self.process = subprocess.Popen(
            [Path(harness.SHOAL).resolve(), "serve", model or harness.demo_model(), "--port", "0",
             *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            cwd=folder)
        self.errors = ""
        self.url = ""
        self.name = ""
        self._is_told = False
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors += line
            if match := re.search(r"listening on (https?://\S+);", line):
                self.url = match.group(1)
                self._listening.set()
        self._listening.set()

    def wait_until_listening(self):
        assert self._listening.wait(60) and self.url, self.errors
        return self

    def wait_until_ready(self):
        """Returns the lines to try."""
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if match := re.search(r"base URL (\S+)/v1, model (\S+), API key", line):
                self.url, self.name = match.groups()
                return lines
        self._reader.join(10)
        raise AssertionError(f"the server ended: {self.errors}")

    def get(self, path, timeout=30):
        """(status, body) of a GET, also of an error."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name):
        _, text = self.get("/metrics")
        return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text,
                               re.MULTILINE).group(1))

    def terminate(self):
        """Asks it once to end in order."""
        if not self._is_told and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._is_told = True

    def end(self, timeout=60):
        """Ends it in order; its exit code."""
        self.terminate()
        code = self.process.wait(timeout)
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def openai_client(server, key="none", timeout=120):
    import openai  # of packages(); not every user of this module needs it
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=timeout)


class ServedCase(harness.Case):
    """All tests of a class share one server."""

    ARGUMENTS = ("--nodes", "2")
    MODEL = None  # the demo model

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.ARGUMENTS, model=cls.MODEL)
        cls.addClassCleanup(cls.server.__exit__)
        cls.lines = cls.server.wait_until_ready()
