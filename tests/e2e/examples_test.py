"""The examples of the README and of every command's help, typed as they stand there."""

import gzip
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
from cli_test import COMMANDS

TIMEOUT_S = 280
# What an example writes outside of the folder it is run in, or what needs more than this project.
# serve_test.py runs the examples of serve, which do not end by themselves; RDMA needs a device.
NOT_RUN = re.compile(r"> ~|\| man |^shoal serve|--link verbs")


def readme_examples():
    text = (harness.SOURCE / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("shoal "))


def help_examples():
    for command in COMMANDS:
        _, _, examples = harness.shoal(*command, "--help").stdout.partition("Examples:\n")
        yield from (line.strip() for line in examples.splitlines() if line.strip())


class ExamplesTest(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = Path(cls.folder.name)
        (folder / "model.gguf").symlink_to(harness.demo_model())
        (folder / "question.txt").write_text("Name the capital of France.")
        (folder / "file.txt").write_text("Hello, world!")
        cls.write_book(folder)
        cls.write_tokenizer(folder / "folder-with-tokenizer.json")

    @staticmethod
    def write_book(folder):
        """One window of the reference text, so that the exact path is done soon."""
        text = (harness.DATA / "perplexity.txt").read_text(encoding="utf-8")
        ids = json.loads(harness.shoal("tokenize", harness.demo_model(), "-", "--json",
                                       text_in=text).stdout)["ids"][:520]
        book = json.loads(harness.shoal("tokenize", harness.demo_model(), "--decode", "-", "--json",
                                        text_in=json.dumps(ids)).stdout)["text"]
        (folder / "book.txt").write_text(book, encoding="utf-8")
        whole = gzip.decompress((harness.DATA / "first_3_windows.top64.gz").read_bytes())
        ids_end = len(whole) // 3
        (folder / "book.top64").write_bytes(
            whole[:255 * 128] + whole[ids_end:ids_end + 255 * 256])

    @staticmethod
    def write_tokenizer(folder):
        from tokenize_test import TINY_TOKENIZER
        folder.mkdir()
        tokenizer = dict(TINY_TOKENIZER)
        tokenizer["model"] = {**tokenizer["model"],
                              "vocab": {letter: i for i, letter in enumerate("Helo")},
                              "merges": []}
        tokenizer["added_tokens"] = []
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    def run_line(self, line):
        environment = {**os.environ, "XDG_STATE_HOME": self.folder.name,
                       "PATH": f"{Path(harness.SHOAL).resolve().parent}:{os.environ['PATH']}"}
        return subprocess.run(["bash", "-c", line], cwd=self.folder.name, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S)

    def check(self, lines):
        lines = list(lines)
        self.assertGreater(len(lines), 3)
        for line in lines:
            if NOT_RUN.search(line):
                continue
            with self.subTest(line=line):
                result = self.run_line(line)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("shoal: ", result.stderr.replace("shoal: note: ", ""))

    def test_the_examples_of_the_readme_work(self):
        self.check(readme_examples())

    def test_the_examples_of_the_help_work(self):
        self.check(help_examples())


if __name__ == "__main__":
    unittest.main()
