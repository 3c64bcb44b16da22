"""PlantedTree: a small throw-away tree in which the checkers' tests plant a violation."""

import shutil
import tempfile
import unittest
from pathlib import Path


class PlantedTree:
    def __init__(self, test: unittest.TestCase):
        self.root = Path(tempfile.mkdtemp(prefix="shoal-planted-"))
        test.addCleanup(shutil.rmtree, self.root)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
