#!/usr/bin/env python3
"""The direction of dependency between the modules of src/ (src/README.md has the picture).

Computes the graph of quoted includes. Refuses: an include upward or between neighbours, a cycle of
files, an include that is not written from the root of src/ or not in quotes, a source that does not
include its own header first.
"""

import re
import sys
from pathlib import Path

import repo

# base < {fabric, tensor, text} < {collective, model} < plan < {runtime, cluster} < server < cli
LAYERS = [{"base"}, {"fabric", "tensor", "text"}, {"collective", "model"}, {"plan"},
          {"runtime", "cluster"}, {"server"}, {"cli"}]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}
# Made by the build: the name, and the only module that may include it.
GENERATED = {"build_info.h": "cli"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
ANGLE_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*<([^>]+)>', re.MULTILINE)


def includes_of(text: str, pattern: re.Pattern = INCLUDE) -> list[tuple[int, str]]:
    return [(text.count("\n", 0, match.start()) + 1, match.group(1))
            for match in pattern.finditer(text)]


def check_include(root: Path, path: Path, target: str) -> str | None:
    """What is wrong with this include, or None. Both are relative to src/."""
    module = path.parts[0]
    if target in GENERATED:
        allowed = GENERATED[target]
        return None if module == allowed else f"{target} is for {allowed} alone"
    if ".." in Path(target).parts or not (root / "src" / target).is_file():
        return f'"{target}" is not a file of src/ (write it from there)'
    other = Path(target).parts[0]
    if other == module:
        return None
    if other not in LEVEL:
        return f"{other} is no module of the order in tools/check_layering.py"
    if LEVEL[other] == LEVEL[module]:
        return f"{module} and {other} are neighbours: neither includes the other"
    if LEVEL[other] > LEVEL[module]:
        return f"{module} lies below {other}: nothing includes upward"
    return None


def find_cycle(graph: dict[str, list[str]]) -> list[str] | None:
    done, path, on_path = set(), [], set()

    def visit(node: str) -> list[str] | None:
        if node in on_path:
            return path[path.index(node):] + [node]
        if node in done or node not in graph:
            return None
        path.append(node)
        on_path.add(node)
        for target in graph[node]:
            if cycle := visit(target):
                return cycle
        on_path.remove(path.pop())
        done.add(node)
        return None

    for node in sorted(graph):
        if cycle := visit(node):
            return cycle
    return None


def check(root: Path) -> list[str]:
    findings, graph = [], {}
    sources = [path.relative_to("src") for path in repo.files(root)
               if path.parts[0] == "src" and path.suffix in (".cc", ".h")]
    known = {path.as_posix() for path in sources}
    for path in sources:
        if path.parts[0] not in LEVEL:
            findings.append(f"src/{path}: {path.parts[0]} is no module of the order in "
                            "tools/check_layering.py")
            continue
        text = repo.read(root, Path("src") / path)
        includes = includes_of(text)
        graph[path.as_posix()] = [target for _, target in includes]
        for line, target in includes:
            if wrong := check_include(root, path, target):
                findings.append(f"src/{path}:{line}: {wrong}")
        for line, target in includes_of(text, ANGLE_INCLUDE):
            if (root / "src" / target).is_file():
                findings.append(f"src/{path}:{line}: <{target}> is a file of src/: write it in "
                                "quotes")
        own = path.with_suffix(".h").as_posix()
        if path.suffix == ".cc" and own in known and (not includes or includes[0][1] != own):
            findings.append(f'src/{path}:1: "{own}" is not its first include')
    if cycle := find_cycle(graph):
        findings.append("a cycle of includes: " + " -> ".join(cycle))
    return findings


if __name__ == "__main__":
    sys.exit(repo.run_checker(__doc__, check))
