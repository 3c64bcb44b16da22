#!/usr/bin/env python3
"""The steps of `./dev check` and `./dev test`: runs them in order, goes on after a failure, and
ends with a table and a line `N passed, M failed`.

A step is one or more commands, one after the other or at once, with a log in build/logs/STEP.log. A step
whose `after` failed is not run and counts as failed. ctest's and the fuzzers' own counts go into the final line; every
other step counts as one.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import repo

PYTHON = sys.executable
LOGS = repo.ROOT / "build" / "logs"
TAIL_LINES = 60
HEARTBEAT_SECONDS = 60
TSAN_MODULES = ("base", "fabric", "collective", "tensor", "runtime", "server")
SYMBOLIZER = "/usr/bin/llvm-symbolizer-19"
RUNNING: set[subprocess.Popen] = set()


@dataclass
class Step:
    name: str
    commands: list[list[str]]
    after: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: int = 1800
    at_once: bool = False    # its commands run side by side, all to their ends
    hint: str = ""       # what to do when it failed


@dataclass
class Outcome:
    step: Step
    seconds: float
    passed: int
    failed: int
    note: str = ""


def tool(name: str, *arguments: str) -> list[str]:
    return [PYTHON, str(repo.ROOT / "tools" / name), *arguments]


def build(preset: str, *targets: str) -> list[list[str]]:
    return [["cmake", "--preset", preset],
            ["cmake", "--build", "--preset", preset, "--target", *(targets or ("all",))]]


def ctest(preset: str, *arguments: str) -> list[list[str]]:
    return [["ctest", "--test-dir", str(repo.ROOT / "build" / preset), "--output-on-failure",
             "--no-tests=error", *arguments]]


# Three at once on two cores: half of the time of the unit tests is waiting, most of it in one program.
def unit(preset: str, *arguments: str) -> list[list[str]]:
    return ctest(preset, "-j3", *(arguments or ("-LE", "check|e2e|guest")))


def with_environment(environment: dict[str, str], *command: str) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in environment.items()), *command]


def format_command() -> list[str]:
    sources = [str(path) for path in repo.files(repo.ROOT)
               if path.suffix in (".cc", ".h") and not repo.is_data(path)]
    return ["clang-format-19", "--dry-run", "-Werror", *sources]


def common_steps() -> list[Step]:
    return [
        Step("format", [format_command()], hint="./dev format rewrites the sources"),
        Step("build", build("release", "all", "header_checks")),
        Step("repository", ctest("release", "-L", "check"), after=("build",)),
    ]


def check_steps() -> list[Step]:
    tidy = tool("check_tidy.py", "build/release", "--seconds", "45")
    return [*common_steps(), Step("unit", unit("release"), after=("build",)), Step("tidy", [tidy], after=("build",))]


def test_data() -> dict[str, str]:
    """Names the folder of fetched data, so that a test that lacks it fails rather than skips."""
    folder = subprocess.run(tool("fetch_test_data.py", "--path"), check=True, capture_output=True,
                            text=True).stdout.splitlines()[-1]
    return {"SHOAL_TESTDATA": folder}


def test_steps() -> list[Step]:
    symbolizer = {"ASAN_SYMBOLIZER_PATH": SYMBOLIZER, "UBSAN_OPTIONS": "print_stacktrace=1"}
    tsan = {"TSAN_OPTIONS": f"halt_on_error=1 external_symbolizer_path={SYMBOLIZER}"}
    raced = [f"{module}_test" for module in TSAN_MODULES]
    # Sanitizers give memory back late: ASan as its quarantine says, TSan with what it remembers.
    storm = {"SHOAL_STORM_SECONDS": "60"}
    asan_storm = storm | symbolizer | {"ASAN_OPTIONS": "quarantine_size_mb=8"}
    tsan_storm = storm | tsan | {"SHOAL_STORM_KEPT_MB": "300"}
    # Emulation is slow, these paths are the same plain C++ everywhere, and both Arm paths have the
    # same attention.
    emulated = {"GTEST_FILTER": "-*_exact:*_portable*:*/exact*:*/portable*:MatmulPanel.*:"
                                "*/Attention.*/neon_i8mm*:MachineProbe.*"}
    data = test_data()
    tidy = tool("check_tidy.py", "build/release", "build/asan", "--without-tests")
    return [
        Step("data", [tool("fetch_test_data.py")]),
        *common_steps(),
        Step("unit", unit("release"), after=("build",), env=data),
        # The storm comes later, under the sanitizers.
        Step("e2e", ctest("release", "-L", "e2e", "-E", "^e2e_serve_storm$"), after=("build",)),
        Step("aarch64", build("aarch64") + ctest("aarch64"), env=emulated),
        Step("asan-build", build("asan")),
        Step("tidy", [tidy], after=("asan-build",), timeout_s=3000),
        Step("asan", unit("asan"), after=("asan-build",), env=symbolizer | data),
        Step("guest", ctest("release", "-L", "^guest$"), after=("asan-build",), timeout_s=2400,
             env={"SHOAL_ASAN_BUILD_DIR": str(repo.ROOT / "build" / "asan")}),
        Step("tsan-build", build("tsan", *raced, "shoal")),
        Step("tsan", unit("tsan", "-R", f"^({'|'.join(raced)})$"), after=("tsan-build",), env=tsan),
        # Half of a storm is waiting.
        Step("storms", [with_environment(environment, *ctest(preset, "-R", "^e2e_serve_storm$")[0])
                        for preset, environment in (("asan", asan_storm), ("tsan", tsan_storm))],
             after=("asan-build", "tsan-build"), at_once=True),
        Step("fuzz", [tool("run_fuzzers.py")], after=("asan-build",), env=symbolizer),
    ]


def clock() -> str:
    return time.strftime("%H:%M:%S")


def run_command(command: list[str], step: Step, log, deadline: float) -> int:
    """The exit code; says every minute that it still runs; kills all of it at the deadline."""
    process = subprocess.Popen(command, cwd=repo.ROOT, env={**os.environ, **step.env}, stdout=log,
                               stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    RUNNING.add(process)
    try:
        while True:
            try:
                return process.wait(min(HEARTBEAT_SECONDS, max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline:
                    log.write(f"\nstopped: the step {step.name} took over {step.timeout_s} s\n")
                    return 124
                print(f"[{clock()}] {step.name} goes on", flush=True)
    finally:
        RUNNING.discard(process)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def counts(log: str) -> tuple[int, int] | None:
    """Tests passed and failed, summed over what ctest or a `N passed, M failed` line said."""
    found = [(int(total) - int(failed), int(failed)) for failed, total in
             re.findall(r"(\d+) tests? failed out of (\d+)", log)]
    found += [(int(passed), int(failed)) for passed, failed in
              re.findall(r"^(\d+) passed, (\d+) failed$", log, re.MULTILINE)]
    return tuple(map(sum, zip(*found))) if found else None


def run_at_once(run_one, commands: list[list[str]]) -> int:
    with ThreadPoolExecutor(len(commands)) as pool:
        try:
            return max(pool.map(run_one, commands), key=abs)
        except BaseException:
            # This program ends: the threads' own endings wait for their processes.
            for process in list(RUNNING):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise


def run(step: Step) -> Outcome:
    print(f"[{clock()}] {step.name} ...", flush=True)
    path = LOGS / f"{step.name}.log"
    started = time.monotonic()
    with path.open("w") as log:
        def run_one(command: list[str]) -> int:
            log.write(f"$ {' '.join(command)[:2000]}\n")
            log.flush()
            try:
                return run_command(command, step, log, started + step.timeout_s)
            except OSError as error:
                log.write(f"{command[0]}: {error.strerror}\n")
                return 127

        if step.at_once:
            code = run_at_once(run_one, step.commands)
        else:
            code = next((code for code in map(run_one, step.commands) if code != 0), 0)
    seconds = time.monotonic() - started
    text = path.read_text(errors="replace")
    passed, failed = counts(text) or (int(code == 0), int(code != 0))
    if code != 0:
        failed = max(failed, 1)
        print("\n".join(f"    {line}" for line in text.splitlines()[-TAIL_LINES:]))
        print(f"    (all of it: {path.relative_to(repo.ROOT)})")
        if step.hint:
            print(f"    {step.hint}")
    print(f"[{clock()}] {step.name} {'ok' if code == 0 else 'FAILED'} in {seconds:.1f} s",
          flush=True)
    return Outcome(step, seconds, passed, failed)


def run_all(steps: list[Step]) -> int:
    LOGS.mkdir(parents=True, exist_ok=True)
    # Ending this program ends the step that runs (run_command's finally).
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcomes, broken = [], set()
    for step in steps:
        if missing := [name for name in step.after if name in broken]:
            outcomes.append(Outcome(step, 0, 0, 1, f"not run: {', '.join(missing)} failed"))
        else:
            outcomes.append(run(step))
        if outcomes[-1].failed:
            broken.add(step.name)
    print(f"\n{'step':<12}{'seconds':>9}{'passed':>8}{'failed':>8}")
    for outcome in outcomes:
        print(f"{outcome.step.name:<12}{outcome.seconds:>9.1f}{outcome.passed:>8}"
              f"{outcome.failed:>8}  {outcome.note or ('FAILED' if outcome.failed else 'ok')}")
    print(f"{'together':<12}{sum(outcome.seconds for outcome in outcomes):>9.1f}\n")
    failed = sum(outcome.failed for outcome in outcomes)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev check|test", description=__doc__)
    parser.add_argument("plan", choices=["check", "test"])
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only these (and what they need)")
    parser.add_argument("--quick", action="store_true", help="no sanitizers, fuzzers, clang-tidy or other processors")
    parser.add_argument("--list", action="store_true", help="name the steps and stop")
    options = parser.parse_args()
    steps = check_steps() if options.plan == "check" else test_steps()
    names = [step.name for step in steps]
    if options.list:
        print("\n".join(names))
        return 0
    if unknown := [name for name in options.steps if name not in names]:
        parser.error(f"no step {', '.join(unknown)}; there are: {', '.join(names)}")
    if options.quick:
        slow = ("asan", "tsan", "storms", "fuzz", "tidy", "aarch64")
        steps = [step for step in steps if not step.name.startswith(slow)]
    if options.steps:
        needed = set(options.steps).union(*(step.after for step in steps if step.name in options.steps))
        steps = [step for step in steps if step.name in needed]
    return run_all(steps)


if __name__ == "__main__":
    sys.exit(main())
