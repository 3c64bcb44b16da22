#!/usr/bin/env python3
"""READMEs, links and leftovers.

Every top folder with code or documents and every module of src/ has a README.md; none but the
root's is longer than 60 lines. Relative links in *.md lead to files. No marker of unfinished work
stands in code or documents: work that is left is an issue.
"""

import re
import sys
from pathlib import Path

import repo

README_LINES_MAX = 60
DOCUMENTED = {"bench", "docs", "fuzz", "src", "tests", "tools", "web"}
TEXT = {".cc", ".h", ".py", ".sh", ".rs", ".ts", ".md", ".cmake", ".toml", ".txt", ""}
LINK = re.compile(r"\[[^\]\n]*\]\(<?([^)>\s]+)>?[^)\n]*\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# Spelled so that this file does not find itself.
LEFTOVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


def readme_findings(root: Path, paths: list[Path]) -> list[str]:
    wanted = {Path(path.parts[0]) for path in paths if path.parts[0] in DOCUMENTED}
    wanted |= {Path(*path.parts[:2]) for path in paths
               if path.parts[0] == "src" and len(path.parts) > 2}
    findings = [f"{folder}: has no README.md" for folder in sorted(wanted)
                if not (root / folder / "README.md").is_file()]
    for path in paths:
        if path.name != "README.md" or path.parent == Path("."):
            continue
        lines = repo.read(root, path).count("\n")
        if lines > README_LINES_MAX:
            findings.append(f"{path}:1: {lines} lines, at most {README_LINES_MAX}")
    return findings


def link_findings(root: Path, path: Path, text: str) -> list[str]:
    findings = []
    prose = CODE_BLOCK.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    for match in LINK.finditer(prose):
        target = match.group(1).split("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            continue
        if not (root / path.parent / target).exists():
            line = prose.count("\n", 0, match.start()) + 1
            findings.append(f"{path}:{line}: the link to {target} leads nowhere")
    return findings


def check(root: Path) -> list[str]:
    paths = [path for path in repo.files(root) if not repo.is_data(path)]
    findings = readme_findings(root, paths)
    for path in paths:
        if path.suffix not in TEXT or path.name in ("LICENSE", "Cargo.lock"):
            continue
        text = repo.read(root, path)
        if path.suffix == ".md":
            findings += link_findings(root, path, text)
        for match in LEFTOVER.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            findings.append(f"{path}:{line}: {match.group(0)}: finish it, or file an issue")
    return findings


if __name__ == "__main__":
    sys.exit(repo.run_checker(__doc__, check))
