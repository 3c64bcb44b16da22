"""check_tidy's cache keys: they change with everything that can change the verdict."""

import shutil
import subprocess
import unittest
from pathlib import Path
from unittest import mock

import check_tidy
from planted_tree import PlantedTree


@unittest.skipUnless(shutil.which(check_tidy.CLANG_TIDY), "no clang-tidy here")
class TidyTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)
        self.tree.write(".clang-tidy",
                        "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\n")
        self.tree.write("src/a/deep.h", "#pragma once\n")
        self.tree.write("src/a/a.h", '#pragma once\n#include "a/deep.h"\n')
        self.tree.write("src/a/a.cc", '#include "a/a.h"\n')

    def key(self, command: str = "clang++ -c a.cc") -> str:
        return check_tidy.Keys(self.tree.root).of(Path("src/a/a.cc"), command)

    def test_the_key_stays_while_nothing_changes(self):
        self.assertEqual(self.key(), self.key())

    def test_the_key_changes_with_a_header_of_a_header(self):
        before = self.key()
        self.tree.write("src/a/deep.h", "#pragma once\nint x;\n")
        self.assertNotEqual(before, self.key())

    def test_the_key_changes_with_the_rules_and_with_the_command(self):
        before = self.key()
        self.assertNotEqual(before, self.key("clang++ -DX -c a.cc"))
        self.tree.write(".clang-tidy", "Checks: '-*,modernize-*'\n")
        self.assertNotEqual(before, self.key())

    def test_what_differs_from_the_last_commit_is_known(self):
        git = ["git", "-C", str(self.tree.root), "-c", "user.name=a", "-c", "user.email=a@b"]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
            subprocess.run([*git, *arguments], check=True)
        self.assertEqual(check_tidy.changed(self.tree.root), set())
        self.tree.write("src/a/a.h", "#pragma once\n")
        self.tree.write("src/a/new.cc", "")
        self.assertEqual(check_tidy.changed(self.tree.root),
                         {Path("src/a/a.h"), Path("src/a/new.cc")})

    def test_what_the_newest_commits_touched_is_known(self):
        self.assertIsNone(check_tidy.touched_lately(self.tree.root))
        git = ["git", "-C", str(self.tree.root), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q"], check=True)
        for number in range(3):
            self.tree.write(f"src/a/{number}.cc", "")
            subprocess.run([*git, "add", f"src/a/{number}.cc"], check=True)
            subprocess.run([*git, "commit", "-qm", "one"], check=True)
        with mock.patch.object(check_tidy, "NEWEST_COMMITS", 2):
            self.assertEqual(check_tidy.touched_lately(self.tree.root), {Path("src/a/1.cc"), Path("src/a/2.cc")})

    def plant(self, text: str) -> tuple[bool, str]:
        self.tree.write("src/a/a.cc", text)
        source = self.tree.root / "src/a/a.cc"
        self.tree.write("build/compile_commands.json",
                        f'[{{"directory": "{self.tree.root}", "file": "{source}", '
                        f'"command": "clang++ -std=c++20 -c {source}"}}]')
        with mock.patch.object(check_tidy.repo, "ROOT", self.tree.root):
            return check_tidy.tidy(self.tree.root, self.tree.root / "build", Path("src/a/a.cc"),
                                   check_tidy.Depth.FULL)

    def test_a_planted_finding_fails_and_its_repair_passes(self):
        clean, output = self.plant("int* f() { return 0; }\n")
        self.assertFalse(clean)
        self.assertIn("modernize-use-nullptr", output)
        self.assertTrue(self.plant("int* f() { return nullptr; }\n")[0])


if __name__ == "__main__":
    unittest.main()
