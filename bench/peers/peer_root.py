"""Other programs to compare with, installed from Debian into folders of the user's cache, and the
table of a comparison.

A suite is unpacked by debootstrap into $XDG_CACHE_HOME/shoal/peers/NAME and its programs run there by
chroot, so that nothing of them touches this system. The mounts that this takes are made once, in a
private mount namespace that the measuring script moves itself into; they end with it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PRIVATE = "SHOAL_PEERS_PRIVATE_NAMESPACE"
TIMEOUT_S = 1800


def fail(text: str) -> None:
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "shoal" / "peers"


def debian_mirror() -> str:
    """The mirror that this machine's apt is set up with."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
                            capture_output=True, text=True, check=True).stdout.split()
    for uri in listed:
        if uri.rstrip("/").endswith("/debian"):
            return uri
    fail("apt has no Debian mirror: this comparison needs Debian")


def enter_private_namespace() -> None:
    """Starts this script anew in a mount namespace of its own, unless it is in one."""
    if os.geteuid() != 0:
        fail("needs root: debootstrap, chroot and a mount namespace")
    if PRIVATE not in os.environ:
        os.environ[PRIVATE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def run_quietly(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def run_together(commands: list[list[str]], env: dict[str, str] | None = None,
                 timeout_s: float = TIMEOUT_S) -> list[subprocess.CompletedProcess]:
    """Runs commands at once, to their ends. When their time is up, those that still run are killed with
    all that they have started, and their standard error says so."""
    end = time.monotonic() + timeout_s
    processes: list[subprocess.Popen] = []
    with contextlib.ExitStack() as files:
        def start(command: list[str]) -> list:
            outputs = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=outputs[0],
                                              stderr=outputs[1], env={**os.environ, **(env or {})},
                                              start_new_session=True))
            return outputs

        def text_of(file, late: bool) -> str:
            file.seek(0)
            return file.read() + (f"\nstill running after {timeout_s:g} s" if late else "")

        try:
            outputs = [start(command) for command in commands]
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
        finally:
            late = [process.poll() is None for process in processes]
            for process in (process for process, is_late in zip(processes, late) if is_late):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return [subprocess.CompletedProcess(process.args, process.returncode, text_of(out, False),
                                            text_of(errors, is_late))
                for process, is_late, (out, errors) in zip(processes, late, outputs)]


def print_table(rows: list[list[str]], markdown: bool, align: Callable[[str, int], str]) -> None:
    """The first row is the heading. `align` pads a cell of the plain table: str.ljust or str.rjust."""
    if markdown:
        rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
        print("\n".join("| " + " | ".join(row) + " |" for row in rows))
        return
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(align(cell, width) for cell, width in zip(row, widths)).rstrip())


class PeerRoot:
    """One suite in one folder. `proof` is a file that is there once everything is installed."""

    def __init__(self, name: str, suite: str, packages: list[str], proof: str):
        self.folder = cache_folder() / name
        if not (self.folder / proof).exists():
            self.install(suite, packages)
        for kind, source, target in (("proc", "proc", "proc"), ("", "/sys", "sys"), ("", "/dev", "dev")):
            self.mount(source, target, kind)

    def install(self, suite: str, packages: list[str]) -> None:
        if shutil.which("debootstrap") is None:
            fail("debootstrap is missing: apt-get install debootstrap")
        print(f"installing {' '.join(packages)} of Debian {suite} into {self.folder} (once)", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        run_quietly(["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(partial),
                     debian_mirror()])
        run_quietly(["chroot", str(partial), "apt-get", "install", "-y", "--no-install-recommends", *packages])
        partial.rename(self.folder)

    def mount(self, source: str | Path, target: str, kind: str = "") -> None:
        """Binds a folder, or mounts a file system of a kind, at a place inside."""
        place = self.folder / target
        place.mkdir(parents=True, exist_ok=True)
        how = ["-t", kind] if kind else ["--rbind"]
        run_quietly(["mount", *how, str(source), str(place)])

    def command(self, *words: object) -> list[str]:
        return ["chroot", str(self.folder), *map(str, words)]

    def run(self, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
        return run_together([self.command(*words)], env)[0]


def check_run(done: subprocess.CompletedProcess, what: str) -> str:
    if done.returncode != 0:
        fail(f"{what} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout
