"""The Debian package: it builds, holds what a user needs, names what it depends on, and runs."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["SHOAL_BUILD_DIR"])


def run(*command: str, **options) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240,
                          **options).stdout


class PackagingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="shoal-package-")
        folder = Path(cls.folder.name)
        run("cpack", "-G", "DEB", "-B", str(folder), cwd=BUILD)
        (cls.package,) = folder.glob("*.deb")
        cls.root = folder / "root"
        run("dpkg-deb", "-x", str(cls.package), str(cls.root))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_program_in_the_package_tells_its_version(self):
        version = run(str(self.root / "usr/bin/shoal"), "--version")
        self.assertIn(run("dpkg-deb", "-f", str(self.package), "Version").strip(), version)

    def test_the_package_holds_licence_manual_and_completions(self):
        for path in ("usr/share/doc/shoal/LICENSE", "usr/share/doc/shoal/README.md",
                     "usr/share/man/man1/shoal.1",
                     "usr/share/bash-completion/completions/shoal",
                     "usr/share/zsh/vendor-completions/_shoal",
                     "usr/share/fish/vendor_completions.d/shoal.fish"):
            with self.subTest(path=path):
                self.assertTrue((self.root / path).is_file())

    def test_the_package_names_the_libraries_it_needs(self):
        depends = run("dpkg-deb", "-f", str(self.package), "Depends")
        self.assertIn("libc6", depends)
        self.assertIn("libstdc++6", depends)

    def test_cmake_installs_the_same_program_under_any_prefix(self):
        with tempfile.TemporaryDirectory(prefix="shoal-install-") as prefix:
            run("cmake", "--install", str(BUILD), "--prefix", prefix)
            installed = Path(prefix) / "bin/shoal"
            self.assertTrue(shutil.which(str(installed)))
            self.assertEqual(run(str(installed), "--version"),
                             run(str(BUILD / "shoal"), "--version"))


if __name__ == "__main__":
    unittest.main()
