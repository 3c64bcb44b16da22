"""check_docs: missing and long READMEs, dead links, leftovers."""

import unittest

import check_docs
from planted_tree import PlantedTree

MARKER = "TO" + "DO"


class DocsTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)

    def findings(self) -> list[str]:
        return check_docs.check(self.tree.root)

    def test_a_documented_tree_is_clean(self):
        self.tree.write("README.md",
                        "# Tree\n[a](src/README.md#part) [w](https://a.example/b)\n" * 50)
        self.tree.write("src/README.md", "# src\n```\n[x](nowhere)\n```\n")
        self.tree.write("src/a/README.md", "# a\n")
        self.tree.write("src/a/a.cc", "// mkstemp wants aXXXXXX\n")
        self.assertEqual(self.findings(), [])

    def test_a_module_without_readme_is_found(self):
        self.tree.write("src/README.md", "")
        self.tree.write("src/a/a.cc", "")
        self.assertEqual(self.findings(), ["src/a: has no README.md"])

    def test_a_long_readme_is_found(self):
        self.tree.write("docs/README.md", "\n" * 61)
        self.assertEqual(self.findings(), ["docs/README.md:1: 61 lines, at most 60"])

    def test_a_dead_link_is_found_at_its_line(self):
        self.tree.write("docs/README.md", "\n[a](gone.md)\n")
        self.assertEqual(self.findings(), ["docs/README.md:2: the link to gone.md leads nowhere"])

    def test_a_leftover_is_found_but_not_in_data(self):
        self.tree.write("tools/README.md", "")
        self.tree.write("tools/a.sh", f"# {MARKER}: later\n")
        self.tree.write("src/testdata/a.txt", f"{MARKER}\n")
        self.assertEqual(self.findings(), [
            f"tools/a.sh:1: {MARKER}: finish it, or file an issue"])


if __name__ == "__main__":
    unittest.main()
