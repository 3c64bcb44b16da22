"""`shoal doctor`, and what a run says of links that cannot be used."""

import json
import re
import subprocess
import unittest
from pathlib import Path

import harness

HAS_RDMA = Path("/sys/class/infiniband").is_dir()
UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]
MAY_UNSHARE = subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
CAPITAL = ["Name the capital of France.", "--temperature", "0", "-n", "8"]


class DoctorTest(harness.Case):
    def test_a_machine_that_can_join_nodes_is_well(self):
        told = self.succeed_json("doctor")
        self.assertEqual((told["ok"], told["link"], told["nodes"]), (True, "auto", 2))
        levels = {finding["id"]: finding["level"] for finding in told["findings"]}
        self.assertEqual((levels["shared-memory"], levels["tcp"]), ("ok", "ok"))
        self.assertNotIn("problem", levels.values())
        text = self.succeed("doctor")
        for finding in told["findings"]:
            self.assertIn(f"{finding['level']:<9}{finding['what']}\n", text)
            if finding["remedy"] is not None:
                self.assertIn(f"-> {finding['remedy']}\n", text)

    @unittest.skipIf(HAS_RDMA, "this machine has RDMA devices")
    def test_without_rdma_it_is_a_note_unless_rdma_is_wanted(self):
        for link, level in (("auto", "note"), ("shm", "note"), ("tcp", "note"), ("verbs", "problem")):
            with self.subTest(link=link):
                result = harness.shoal("doctor", "--link", link, "--json")
                self.assertEqual(result.returncode, 1 if level == "problem" else 0, result.stderr)
                told = json.loads(result.stdout)
                self.assertEqual(told["ok"], level != "problem")
                device = next(f for f in told["findings"] if f["id"] == "rdma-device")
                self.assertEqual(device["level"], level)
                self.assertIn("/dev/infiniband" if "container" in device["what"] else "rdma link add",
                              device["remedy"])
        self.fail_with("doctor", "--link", "verbs", says=["nodes from being joined over verbs", "remedy"])

    def test_too_little_memory_to_lock_is_told_with_both_numbers(self):
        """C73; root may go beyond the limit, so the capability goes too where there is one."""
        result = self.run_limited("ulimit -l 64", "doctor", "--link", "verbs", "--json", drops="ipc_lock")
        self.assertEqual(result.returncode, 1, result.stderr)
        locked = next(f for f in json.loads(result.stdout)["findings"] if f["id"] == "locked-memory")
        self.assertEqual(locked["level"], "problem")
        self.assertRegex(locked["what"], r"65536 bytes .* RDMA needs at least \d{6,} bytes")
        self.assertIn("LimitMEMLOCK", locked["remedy"])

    def test_too_few_descriptors_are_a_warning_since_there_is_tcp(self):
        result = self.run_limited("ulimit -n 150", "doctor", "--nodes", "9", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        memory = json.loads(result.stdout)["findings"][0]
        self.assertEqual((memory["id"], memory["level"]), ("shared-memory", "warning"))
        self.assertIn("150 are allowed", memory["what"])
        self.assertEqual(self.run_limited("ulimit -n 150", "doctor", "--nodes", "9", "--link", "shm").returncode, 1)

    @unittest.skipUnless(MAY_UNSHARE, "this machine lets nobody make a network namespace")
    def test_without_a_loopback_interface_auto_still_joins_nodes_and_tcp_does_not(self):
        """A new network namespace has it switched off."""
        def doctor(*options):
            result = subprocess.run([*UNSHARE, harness.SHOAL, "doctor", "--json", *options], check=False,
                                    capture_output=True, text=True, timeout=harness.TIMEOUT_S)
            told = json.loads(result.stdout)
            tcp = next(finding for finding in told["findings"] if finding["id"] == "tcp")
            return result.returncode, told["ok"], tcp["level"]

        self.assertEqual(doctor(), (0, True, "warning"))
        self.assertEqual(doctor("--link", "tcp"), (1, False, "problem"))

    def test_what_cannot_be_meant_exits_with_2(self):
        self.fail_with("doctor", "--link", "pigeon", code=2, says="verbs")
        self.fail_with("doctor", "--nodes", "1", code=2, says="--nodes")

    @staticmethod
    def run_limited(limit, *arguments, drops=None):
        """Runs the program with a lower limit and, as root, without a capability."""
        program = ["setpriv", f"--bounding-set=-{drops}", f"--inh-caps=-{drops}"] if drops else []
        return subprocess.run(["sh", "-c", f'{limit} && exec "$@"', "sh", *program, harness.SHOAL, *arguments],
                              capture_output=True, text=True, timeout=harness.TIMEOUT_S)


class LinkTest(harness.Case):
    def test_auto_is_shared_memory_and_the_run_says_so(self):
        for options in ([], ["--link", "auto"]):
            answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "--nodes", "2", *options)
            self.assertEqual(answer["link"], "shm")
            self.assertIn("Paris", answer["text"])

    def test_auto_is_tcp_with_a_note_where_descriptors_do_not_suffice(self):
        result = DoctorTest.run_limited("ulimit -n 200", "run", harness.demo_model(), *CAPITAL, "--nodes", "9",
                                        "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["link"], "tcp")
        self.assertIn("Paris", answer["text"])
        self.assertIn("shoal: note: tcp instead of shared memory: ", result.stderr)

    def test_a_link_that_was_asked_for_and_cannot_be_used_is_an_error(self):
        result = DoctorTest.run_limited("ulimit -n 200", "run", harness.demo_model(), *CAPITAL, "--nodes", "9",
                                        "--link", "shm")
        self.assertEqual(result.returncode, 1)
        hint = re.search(r"; see `shoal (doctor [^`]+)`", result.stderr)
        self.assertIsNotNone(hint, result.stderr)
        told = DoctorTest.run_limited("ulimit -n 200", *hint[1].split())
        self.assertEqual(told.returncode, 1, told.stdout)
        self.assertIn("problem  shared memory cannot be used: the links of 9 ranks", told.stdout)
        if HAS_RDMA:
            self.skipTest("this machine has RDMA devices")
        self.fail_with("run", harness.demo_model(), *CAPITAL, "--nodes", "2", "--link", "verbs",
                       says=["no RDMA", "see `shoal doctor --link verbs --nodes 2`"])


if __name__ == "__main__":
    unittest.main()
