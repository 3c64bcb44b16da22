#!/usr/bin/env python3
"""Runs a command on a Linux kernel with RDMA devices in software (soft-RoCE), in a QEMU guest.

    tests/guest/guest.py -- build/release/src/fabric/fabric_test --gtest_filter='*Verbs*'
    tests/guest/guest.py --topology wire --seconds 120 -- python3 tests/guest/verbs_test.py

The guest has this machine's file system read-only, one folder of it writable (--writable, the current
one by default), two processors, and no network but its own. Its kernel is Debian's package, fetched once
and kept under ~/.cache/shoal/guest with an initramfs of busybox and the modules it needs. It is emulated:
what runs in it is five to twenty times slower than here, so nothing about speed follows from it. Needs
root, or sudo without a password (the file system is shared without changing its owners), and
qemu-system-x86, iproute2, ibverbs-providers. In the guest /tmp, /run and /var/tmp are its own.

Topologies: "one" has rxe0 on 192.0.2.1; both ends of a link are the same device. "wire" has rxe0 on
192.0.2.1 and rxe1 on 192.0.2.2, at the ends of a virtual cable (veth0, veth1) on which `tc netem` and
`ip link set veth0 down` act. "wires" has a second one beside it: rxe2 and rxe3 on 198.51.100.1 and 2.

The exit status is the command's (above 127: 127), 124 when the time is over, 125 when the guest failed.
"""
import argparse
import fcntl
import hashlib
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shoal" / "guest"
TIME_IS_OVER, GUEST_FAILED = 124, 125
# Until the command runs: an idle machine takes 6 s.
BOOT_SECONDS = 90
HIDDEN = tuple(map(Path, ("/tmp", "/run", "/var/tmp")))
# Loaded with what they say they depend on, and crypto's two, which their users find by name.
MODULES = """crc32_generic crc32c_generic virtio_pci 9pnet_virtio 9p ib_uverbs rdma_rxe dummy veth
    sch_netem""".split()
XZ_MAGIC = b"\xfd7zXZ\x00"


class GuestError(Exception):
    """What keeps the guest from running."""


def kernel_package() -> str:
    """The package that linux-image-amd64 stands for at present; empty where apt does not know."""
    told = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], check=False,
                          capture_output=True, text=True).stdout
    depends = [line.split()[-1] for line in told.splitlines() if "Depends:" in line]
    return depends[0] if depends else ""


def unpacked_kernel(image: bytes) -> bytes:
    """The ELF file in a compressed kernel: the guest need not unpack it, which takes it some seconds."""
    at = image.find(XZ_MAGIC)
    while at >= 0:
        try:
            kernel = lzma.LZMADecompressor().decompress(image[at:])
        except lzma.LZMAError:
            kernel = b""
        if kernel.startswith(b"\x7fELF"):
            return kernel
        at = image.find(XZ_MAGIC, at + 1)
    raise GuestError("no kernel compressed by xz in Debian's image")


def in_load_order(found: dict[str, Path]) -> list[Path]:
    """MODULES behind everything that they need, by the "depends" in each module's own information."""
    ordered: list[Path] = []

    def add(module: str) -> None:
        path = found.get(module)
        if path is None:
            raise GuestError(f"Debian's kernel has no module {module}")
        if path in ordered:
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in depends[1].decode().split(",") if depends else []:
            if needed:
                add(needed.replace("-", "_"))
        ordered.append(path)

    for module in MODULES:
        add(module)
    return ordered


def make_initramfs(packages: Path, target: Path) -> None:
    """Busybox, the modules in the order of loading, and init."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for folder in ("bin", "proc", "sys", "dev", "tmp", "host", "modules"):
            (tree / folder).mkdir()
        busybox = packages / "bin" / "busybox"
        shutil.copy2(busybox, tree / "bin")
        found = {path.name.split(".")[0].replace("-", "_"): path
                 for path in packages.glob("lib/modules/*/kernel/**/*.ko")}
        ordered = in_load_order(found)
        for path in ordered:
            shutil.copy2(path, tree / "modules" / path.name)
        (tree / "modules" / "order").write_text("".join(f"{path.name}\n" for path in ordered))
        shutil.copy2(HERE / "init", tree / "init")
        (tree / "init").chmod(0o755)
        names = "\n".join(sorted(str(path.relative_to(tree)) for path in tree.rglob("*")))
        with open(target, "wb") as archive:
            subprocess.run([busybox, "cpio", "-o", "-H", "newc", "-R", "0:0"], input=names.encode(), cwd=tree,
                           stdout=archive, stderr=subprocess.DEVNULL, check=True)


def make_kernel(package: str, target: Path) -> None:
    """Fetches the package and leaves vmlinux and initramfs in `target`."""
    print(f"guest: fetching {package} and busybox-static", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="making-") as name:
        work = Path(name)
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package,
                        "busybox-static"], cwd=work, check=True)
        for deb in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", deb, work / "tree"], check=True)
        made = work / "made"
        made.mkdir()
        image = next((work / "tree" / "boot").glob("vmlinuz-*"))
        (made / "vmlinux").write_bytes(unpacked_kernel(image.read_bytes()))
        make_initramfs(work / "tree", made / "initramfs")
        made.rename(target)


def remove_unused(keep: Path) -> None:
    """What killed preparations and other kernels have left, unless a guest of theirs runs."""
    for old in (*CACHE.glob("making-*"), *CACHE.glob("linux-image-*")):
        with suppress(OSError):
            if old != keep:
                lock = os.open(old, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old)
                finally:
                    os.close(lock)


@contextmanager
def kernel_folder():
    """The folder with vmlinux and initramfs, made anew for another kernel or another init; nobody removes it
    meanwhile."""
    CACHE.mkdir(parents=True, exist_ok=True)
    made_by = hashlib.sha256((HERE / "init").read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        package = kernel_package()
        folder = CACHE / f"{package}-{made_by}"
        ready = sorted(CACHE.glob(f"linux-image-*-{made_by}"), key=lambda path: path.stat().st_mtime)
        if not folder.exists():
            try:
                if not package:
                    raise GuestError("apt knows no kernel package: run apt-get update")
                make_kernel(package, folder)
            except (GuestError, subprocess.CalledProcessError):
                if not ready:
                    raise
                folder = ready[-1]
        remove_unused(folder)
        used = os.open(folder, os.O_RDONLY)
        fcntl.flock(used, fcntl.LOCK_SH)
    try:
        yield folder
    finally:
        os.close(used)


@contextmanager
def control_folder(command: list[str], environment: dict[str, str], writable: Path):
    """What the guest reads its orders from and writes the exit status to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy2(HERE / "start.sh", folder)
        exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())
        (folder / "writable").write_text(str(writable))
        (folder / "command").write_text(
            f"{exports}cd {shlex.quote(os.getcwd())} || exit {GUEST_FAILED}\nexec {shlex.join(command)}\n")
        yield folder


def share(path: Path, tag: str, options: str = "") -> list[str]:
    escaped = str(path).replace(",", ",,")
    return ["-virtfs", f"local,path={escaped},mount_tag={tag},security_model=none,multidevs=remap{options}"]


def as_root() -> list[str]:
    if os.geteuid() == 0:
        return []
    if subprocess.run(["sudo", "-n", "true"], check=False, capture_output=True).returncode != 0:
        raise GuestError("needs root, or sudo without a password, to share the file system")
    return ["sudo", "-n"]


def check_visible(path: Path, writable: Path) -> None:
    if any(path.is_relative_to(folder) for folder in HIDDEN) and not path.is_relative_to(writable):
        raise GuestError(f"the guest does not see {path}: /tmp, /run and /var/tmp are its own; --writable "
                         "names a folder that it sees in any case")


def run(command: list[str], args: argparse.Namespace) -> int:
    if shutil.which("qemu-system-x86_64") is None:
        raise GuestError("no qemu-system-x86_64: install qemu-system-x86")
    writable = args.writable.resolve()
    check_visible(Path.cwd(), writable)
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "SHOAL_GUEST": args.topology}
    environment |= dict(pair.split("=", 1) for pair in args.env)
    seconds = args.seconds + BOOT_SECONDS
    with kernel_folder() as kernel, control_folder(command, environment, writable) as control:
        # The limit is QEMU's parent, so that it holds whatever becomes of this program.
        qemu = [*as_root(), "timeout", "--foreground", "--signal=KILL", str(seconds),
                "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", args.cpu,
                "-smp", str(args.processors), "-m", str(args.memory), "-nodefaults", "-no-user-config",
                "-display", "none", "-no-reboot", "-nic", "none",
                "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
                "-serial", f"file:{control / 'console'}", "-serial", "stdio",
                *share(Path("/"), "host", ",readonly=on"), *share(writable, "work"),
                *share(control, "control"),
                "-kernel", str(kernel / "vmlinux"), "-initrd", str(kernel / "initramfs"),
                "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on "
                           "nowatchdog rcupdate.rcu_cpu_stall_suppress=1 "
                           f"guest.topology={args.topology} guest.seconds={args.seconds}"]
        ended = subprocess.run(qemu, stdin=subprocess.DEVNULL, check=False).returncode
        status = control / "status"
        told = int(status.read_text()) if status.exists() and status.read_text().strip() else None
        # The debug device makes QEMU end with an odd status; an even one is QEMU's own or a panic's.
        is_sure = ended > 0 and ended % 2 == 1 and told is not None and ended >> 1 == told
        is_late = ended in (-9, 128 + 9)
        result = told if is_sure else TIME_IS_OVER if is_late else GUEST_FAILED
        if result in (TIME_IS_OVER, GUEST_FAILED) or args.verbose:
            console = control / "console"
            lines = console.read_text(errors="replace").splitlines()[-40:] if console.exists() else []
            print(f"guest: qemu ended with {ended}, the command with {told}; the console's end:", *lines,
                  sep="\n", file=sys.stderr)
        return result


def run_script(script: str, *options: str) -> str:
    """What a shell script writes in a guest with these options; AssertionError when it fails there."""
    done = subprocess.run([sys.executable, __file__, *options, "--", "bash", "-c", script], cwd=HERE.parents[1],
                          check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{script}\nthe guest ended with {done.returncode}: {done.stdout}\n{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", choices=["one", "wire", "wires"], default="one")
    parser.add_argument("--seconds", type=int, default=120, help="for the command")
    parser.add_argument("--writable", type=Path, default=Path.cwd(), help="a folder that the guest may write to")
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--memory", type=int, default=768, help="MiB")
    parser.add_argument("--cpu", default="max,la57=off", help="QEMU's name of the processor")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--verbose", action="store_true", help="show the console in any case")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    try:
        return run(args.command, args)
    except (GuestError, subprocess.CalledProcessError, OSError) as error:
        print(f"guest: {error}", file=sys.stderr)
        return GUEST_FAILED


if __name__ == "__main__":
    sys.exit(main())
