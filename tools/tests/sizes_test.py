"""check_sizes and the scanner under it: each limit with one planted violation."""

import unittest

import check_sizes
import cpp_scan
from planted_tree import PlantedTree


def function_of(lines: int, head: str = "int f(int a)") -> str:
    return head + " {\n" + "  a();\n" * (lines - 2) + "}\n"


class ScannerTest(unittest.TestCase):
    def names(self, text: str) -> list[tuple[str, int, int]]:
        return [(f.name, f.lines, f.parameters) for f in cpp_scan.functions(text)]

    def test_braces_in_strings_and_comments_do_not_count(self):
        text = ('int f() {\n  g("}{", \'}\', R"x(})x");  // }\n  /* } */\n}\n'
                "int h() { return 1'000; }\n")
        self.assertEqual(self.names(text), [("f", 4, 0), ("h", 1, 0)])

    def test_methods_constructors_and_operators_are_found(self):
        text = ("namespace a {\nclass B : public C {\n public:\n  B() : x_{1}, y_(2) {\n  }\n"
                "  bool operator==(const B& other) const {\n    return true;\n  }\n"
                "  int x() const { return x_; }\n};\n}\n")
        self.assertEqual(self.names(text), [("B", 2, 0), ("operator==", 3, 1), ("x", 1, 0)])

    def test_tables_lambdas_and_types_are_told_from_functions(self):
        text = ("constexpr int kTable[] = {\n1,\n2,\n};\nenum class E : int {\n  kA,\n};\n"
                "struct alignas(64) S {\n  int a = 0;\n  int b{0};\n};\n"
                "const auto kF = [](int a) {\n  return a;\n};\n")
        self.assertEqual([name for name, *_ in self.names(text)], ["kF"])

    def test_commas_inside_template_arguments_and_defaults_are_not_parameters(self):
        text = ("void f(std::map<int, int> a, std::array<int, 3> b = {1, 2, 3}, "
                "int c = g(1, 2)) {}\n")
        self.assertEqual(self.names(text), [("f", 1, 3)])

    def test_a_template_head_is_no_initializer(self):
        text = "template <typename T = int, int kN = 3>\nT f(T a) {\n  return a;\n}\n"
        self.assertEqual(self.names(text), [("f", 4, 1)])


class SizesTest(unittest.TestCase):
    def setUp(self):
        self.tree = PlantedTree(self)

    def findings(self) -> list[str]:
        return check_sizes.check(self.tree.root)

    def test_a_tree_within_the_limits_is_clean(self):
        self.tree.write("src/a/a.cc", function_of(70))
        self.tree.write("src/tensor/cpu/k.cc", function_of(120))
        self.tree.write("src/a/a_test.cc", "\n" * 1000)
        self.assertEqual(self.findings(), [])

    def test_a_long_function_is_found_at_its_line(self):
        self.tree.write("src/a/a.cc", "\n\n" + function_of(71))
        self.assertEqual(self.findings(), ["src/a/a.cc:3: f has 71 lines, at most 70"])

    def test_a_long_kernel_is_found(self):
        self.tree.write("src/tensor/cpu/k.cc", function_of(121))
        self.assertEqual(len(self.findings()), 1)

    def test_too_many_parameters_are_found(self):
        head = "void f(int a, int b, int c, int d, int e, int g)"
        self.tree.write("src/a/a.cc", function_of(3, head))
        self.assertEqual(self.findings(), ["src/a/a.cc:1: f has 6 parameters, at most 5"])

    def test_long_files_are_found_by_their_own_limits(self):
        self.tree.write("src/a/a.cc", "\n" * 801)
        self.tree.write("src/a/b_test.cc", "\n" * 1001)
        self.assertEqual(len(self.findings()), 2)

    def test_a_full_folder_is_found_and_its_readme_not_counted(self):
        for number in range(20):
            self.tree.write(f"src/a/f{number}.h", "")
        self.tree.write("src/a/README.md", "")
        self.assertEqual(self.findings(), [])
        self.tree.write("src/a/f20.h", "")
        self.assertEqual(self.findings(), ["src/a: 21 files, at most 20"])

    def test_an_exemption_counts_only_with_a_reason_and_a_use(self):
        self.tree.write("src/a/a.cc", function_of(71))
        self.tree.write("tools/size_exemptions.txt", "function src/a/a.cc:f one long table\n")
        self.assertEqual(self.findings(), [])
        self.tree.write("tools/size_exemptions.txt", "function src/a/a.cc:f\nfile src/b.cc gone\n")
        self.assertEqual(len(self.findings()), 3)


if __name__ == "__main__":
    unittest.main()
