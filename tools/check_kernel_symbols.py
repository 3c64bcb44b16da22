#!/usr/bin/env python3
"""No kernel source with instruction-set flags may offer its copy of a shared inline function.

Such a source is compiled for one instruction set. A weak symbol in its object (an inline function or
a template of a shared header that was not inlined) could be the copy that the linker takes for all
sources, and would end the program on a processor without that set.

usage: check_kernel_symbols.py NM OBJECT...
"""

import subprocess
import sys

WEAK = {"W", "w", "V", "v", "u"}


def weak_symbols(nm: str, path: str) -> list[str]:
    """Weak symbols that the object defines, demangled."""
    listing = subprocess.run([nm, "-C", "--defined-only", path], check=True, capture_output=True,
                             text=True).stdout
    parted = (line.split(maxsplit=2) for line in listing.splitlines())
    return [fields[2] for fields in parted if len(fields) == 3 and fields[1] in WEAK]


def main() -> int:
    nm, *paths = sys.argv[1:]
    flagged = [path for path in paths if "/cpu/x86/" in path or "/cpu/arm/" in path]
    if not flagged:
        print("no kernel objects were named")
        return 2
    found = [(path, symbol) for path in flagged for symbol in weak_symbols(nm, path)]
    for path, symbol in found:
        print(f"{path}: {symbol}\n  mark it [[gnu::always_inline]] or static")
    print(f"{len(flagged)} kernel objects, {len(found)} weak symbols")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
