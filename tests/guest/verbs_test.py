"""RDMA on real queue pairs: soft-RoCE's, in guests (guest.py). Each test is one boot.

The program under test is SHOAL, the build folder SHOAL_BUILD_DIR; SHOAL_ASAN_BUILD_DIR names the one
with the address sanitizer, without which its test is skipped.
"""

import os
import unittest

import guest
import harness

BUILD = os.environ.get("SHOAL_BUILD_DIR", "build/release")
ASAN_BUILD = os.environ.get("SHOAL_ASAN_BUILD_DIR")


def program(build, module):
    return f"{build}/src/{module}/{module}_test --gtest_brief=1 --gtest_color=no --gtest_filter="


class GuestTest(unittest.TestCase):
    def in_guest(self, *commands, topology="one", seconds=120, options=()):
        """Runs shell commands, one after the other; the first that fails ends the guest."""
        return guest.run_script("\n".join(("set -e", *commands)), "--topology", topology, "--seconds",
                                str(seconds), *options)

    def assert_ran(self, output, at_least):
        """So many tests passed, and none was skipped."""
        passed = [int(line.split()[3]) for line in output.splitlines() if line.startswith("[  PASSED  ]")]
        self.assertGreaterEqual(sum(passed), at_least, output)
        self.assertNotIn("SKIPPED", output)

    def test_contract_and_collectives(self):
        output = self.in_guest(program(BUILD, "fabric") + "*/verbs", program(BUILD, "collective") + "*/verbs?",
                               f"{BUILD}/src/fabric/data_path_test --gtest_color=no --gtest_filter=*/verbs")
        self.assert_ran(output, 31)

    def test_contract_and_collectives_over_two_wires(self):
        output = self.in_guest(program(BUILD, "fabric") + "*/verbs:VerbsDevice.TwoCables*",
                               program(BUILD, "collective") + "*/verbs?", topology="wires", seconds=200)
        self.assert_ran(output, 32)

    @unittest.skipUnless(ASAN_BUILD, "no build with the address sanitizer: ./dev test makes it first")
    def test_contract_and_collectives_under_the_address_sanitizer(self):
        output = self.in_guest(program(ASAN_BUILD, "fabric") + "*/verbs",
                               program(ASAN_BUILD, "collective") + "*/verbs?", seconds=240,
                               options=["--memory", "1536"])
        self.assert_ran(output, 30)

    def test_death_of_a_peer(self):
        output = self.in_guest(program(BUILD, "fabric") + "VerbsDevice.APeer*", seconds=200)
        self.assert_ran(output, 2)

    def test_bad_wire_and_pulled_cable(self):
        output = self.in_guest(program(BUILD, "fabric") + "VerbsDevice.*Wire*:VerbsDevice.APulledCable*",
                               topology="wire", seconds=300)
        self.assert_ran(output, 3)

    def test_run_gives_the_tokens_of_shared_memory(self):
        model = harness.demo_model()
        run = (f"{harness.SHOAL} run {model} --threads 1 --nodes 2 --temperature 0 -n 12 --link %s "
               "'Name the capital of France.' 2>/tmp/error || { cat /tmp/error; exit 1; }")
        output = self.in_guest(run % "shm", "echo; echo ==", run % "verbs", options=["--memory", "1536"])
        over_shm, over_verbs = output.split("==")
        self.assertTrue(over_shm.strip())
        self.assertEqual(over_verbs.strip(), over_shm.strip())


if __name__ == "__main__":
    unittest.main()
