"""check_orphans: sources and tests that no build file names."""

import unittest

import check_orphans
from planted_tree import PlantedTree


class OrphansTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)

    def findings(self) -> list[str]:
        return check_orphans.check(self.tree.root)

    def test_named_sources_are_clean_also_from_a_folder_above(self):
        self.tree.write("src/a/CMakeLists.txt", "shoal_library(a SOURCES x.cc sub/y.cc)\n")
        self.tree.write("src/a/x.cc", "")
        self.tree.write("src/a/sub/y.cc", "")
        self.assertEqual(self.findings(), [])

    def test_a_test_that_nobody_builds_is_found(self):
        self.tree.write("src/a/CMakeLists.txt", "shoal_library(a SOURCES x.cc)  # x_test.cc\n")
        self.tree.write("src/a/x.cc", "")
        self.tree.write("src/a/x_test.cc", "")
        self.assertEqual(self.findings(), ["src/a/x_test.cc: no CMakeLists.txt builds it"])

    def test_a_name_that_only_ends_alike_is_no_match(self):
        self.tree.write("src/a/CMakeLists.txt", "shoal_library(a SOURCES ax.cc)\n")
        self.tree.write("src/a/x.cc", "")
        self.assertEqual(len(self.findings()), 1)

    def test_an_end_to_end_test_that_nobody_runs_is_found(self):
        self.tree.write("tests/CMakeLists.txt", "add_python_test(run run_test.py)\n")
        self.tree.write("tests/run_test.py", "")
        self.tree.write("tests/chat_test.py", "")
        self.assertEqual(self.findings(), [
            "tests/chat_test.py: no CMakeLists.txt under tests/ runs it"])

    def test_a_tool_test_that_discovery_misses_is_found(self):
        self.tree.write("tools/tests/test_sizes.py", "")
        self.assertEqual(len(self.findings()), 1)


if __name__ == "__main__":
    unittest.main()
