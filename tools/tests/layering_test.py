"""check_layering: every kind of wrong include, planted in a small tree and in a copy of ours."""

import shutil
import unittest

import check_layering
import repo
from planted_tree import PlantedTree


class LayeringTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)
        self.tree.write("src/base/status.h", "#pragma once\n")

    def findings(self) -> list[str]:
        return check_layering.check(self.tree.root)

    def test_including_downward_is_clean(self):
        self.tree.write("src/plan/plan.h", '#include "base/status.h"\n')
        self.tree.write("src/plan/plan.cc", '#include "plan/plan.h"\n\n#include <vector>\n')
        self.assertEqual(self.findings(), [])

    def test_an_upward_include_is_found(self):
        self.tree.write("src/plan/plan.h", "#pragma once\n")
        self.tree.write("src/base/bad.h", '#pragma once\n#include "plan/plan.h"\n')
        self.assertEqual(self.findings(), [
            "src/base/bad.h:2: base lies below plan: nothing includes upward"])

    def test_an_include_between_neighbours_is_found(self):
        self.tree.write("src/fabric/a.h", "")
        self.tree.write("src/tensor/b.h", '#include "fabric/a.h"\n')
        self.assertEqual(self.findings(), [
            "src/tensor/b.h:1: tensor and fabric are neighbours: neither includes the other"])

    def test_a_cycle_of_files_is_found(self):
        self.tree.write("src/plan/a.h", '#include "plan/b.h"\n')
        self.tree.write("src/plan/b.h", '#include "plan/a.h"\n')
        self.assertEqual(self.findings(), [
            "a cycle of includes: plan/a.h -> plan/b.h -> plan/a.h"])

    def test_an_include_not_written_from_src_is_found(self):
        self.tree.write("src/base/a.h", '#include "status.h"\n#include "../base/status.h"\n')
        self.assertEqual(len(self.findings()), 2)

    def test_a_file_of_ours_in_angle_brackets_is_found(self):
        self.tree.write("src/base/a.h", "#include <base/status.h>\n#include <vector>\n")
        self.assertEqual(self.findings(), [
            "src/base/a.h:1: <base/status.h> is a file of src/: write it in quotes"])

    def test_a_source_that_does_not_open_with_its_own_header_is_found(self):
        self.tree.write("src/base/a.h", "")
        self.tree.write("src/base/a.cc", '#include "base/status.h"\n#include "base/a.h"\n')
        self.assertEqual(self.findings(), ['src/base/a.cc:1: "base/a.h" is not its first include'])

    def test_a_module_outside_the_order_is_found(self):
        self.tree.write("src/extra/a.h", "")
        self.assertEqual(len(self.findings()), 1)

    def test_the_build_information_is_for_cli_alone(self):
        self.tree.write("src/cli/main.cc", '#include "build_info.h"\n')
        self.assertEqual(self.findings(), [])
        self.tree.write("src/base/a.cc", '#include "build_info.h"\n')
        self.assertEqual(len(self.findings()), 1)

    def test_an_upward_include_planted_in_a_copy_of_this_tree_is_found(self):
        copy = self.tree.root / "copy"
        shutil.copytree(repo.ROOT / "src", copy / "src", ignore=shutil.ignore_patterns(
            "target", "testdata", "*_test.cc"))
        before = set(check_layering.check(copy))
        victim = copy / "src/base/status.h"
        victim.write_text(victim.read_text() + '\n#include "runtime/sampler.h"\n')
        planted = set(check_layering.check(copy)) - before
        self.assertTrue(any("base lies below runtime" in finding for finding in planted), planted)


if __name__ == "__main__":
    unittest.main()
