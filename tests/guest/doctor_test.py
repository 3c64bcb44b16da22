"""`shoal doctor` and `shoal info` on a real RDMA device, soft-RoCE's, in a guest (guest.py), with faults planted
in the kernel: one boot."""

import json
import unittest

import guest
import harness

WITHOUT_CAPABILITY = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock"
AS_NOBODY = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
# Name, what is done, how the program is run, the finding that is waited for, what takes it back.
FAULTS = [
    ("healthy", ":", "", "rdma-port", ":"),
    ("mtu", "ip link set dummy0 mtu 1500", "", "rdma-mtu", "ip link set dummy0 mtu 4500"),
    ("address", "ip addr del 192.0.2.1/24 dev dummy0", "", "rdma-address",
     "ip addr add 192.0.2.1/24 dev dummy0"),
    ("memory", "ulimit -S -l 64", WITHOUT_CAPABILITY, "locked-memory", "ulimit -S -l unlimited"),
    ("permission", "chmod 600 /dev/infiniband/uverbs0", AS_NOBODY, "rdma-permission",
     "chmod 666 /dev/infiniband/uverbs0"),
    ("node", "mv /dev/infiniband/uverbs0 /dev/infiniband/away", "", "rdma-node",
     "mv /dev/infiniband/away /dev/infiniband/uverbs0"),
    ("down", "ip link set dummy0 down", "", "rdma-port", "ip link set dummy0 up"),
    ("device", "rdma link del rxe0", "", "rdma-device", ":"),
]
# The kernel follows a change after a moment.
PROBE = """
probe() {
  for _ in $(seq 25); do
    said=$($2 $SHOAL doctor --link verbs --json 2>/dev/null)
    status=$?
    echo "$said" | grep -q "\\"$3\\"" && [ $status = $4 ] && break
    sleep 0.2
  done
  echo "== $1 $status"
  echo "$said"
}
"""


class DoctorInGuestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        script = f"SHOAL={harness.SHOAL}\n{PROBE}\necho '== info 0'; $SHOAL info --json\n"
        for name, plant, prefix, wanted, undo in FAULTS:
            status = 0 if name in ("healthy", "mtu") else 1
            script += f"{plant}\nprobe {name} '{prefix}' {wanted} {status}\n{undo}\n"
        output = guest.run_script(script, "--seconds", "200")
        cls.told = {}
        for part in output.split("== ")[1:]:
            head, _, text = part.partition("\n")
            name, status = head.split()
            cls.told[name] = (int(status), json.loads(text))
        if len(cls.told) != len(FAULTS) + 1:
            raise AssertionError(f"the guest ended with {done.returncode}: {done.stdout}\n{done.stderr}")

    def finding(self, name, wanted, level, status):
        """What the doctor said of that fault."""
        ended, told = self.told[name]
        found = [finding for finding in told["findings"] if finding["id"] == wanted]
        self.assertEqual(len(found), 1, told)
        self.assertEqual((found[0]["level"], ended), (level, status), told)
        return f"{found[0]['what']} -> {found[0]['remedy']}"

    def test_a_device_that_is_well(self):
        what = self.finding("healthy", "rdma-port", "ok", 0)
        self.assertRegex(what, r"rxe0 port 1: active, Ethernet, .* MTU 4096, address 192\.0\.2\.1 "
                               r"\(GID \d+, RoCE v2\) of dummy0")
        self.assertTrue(self.told["healthy"][1]["ok"])

    def test_info_has_the_port(self):
        rdma = self.told["info"][1]["rdma"]
        self.assertIsNone(rdma["unavailable"])
        port = rdma["ports"][0]
        self.assertEqual((port["device"], port["state"], port["physical_state"], port["mtu"], port["link"]),
                         ("rxe0", "active", "link up", 4096, "Ethernet"))
        self.assertIn({"type": "RoCE v2", "address": "192.0.2.1"},
                      [{key: gid[key] for key in ("type", "address")} for gid in port["gids"]])

    def test_a_small_mtu(self):
        self.assertRegex(self.finding("mtu", "rdma-mtu", "warning", 0),
                         "MTU 1024 where 4096 would do, since dummy0 has 1500.*ip link set dummy0 mtu 4200")

    def test_no_address(self):
        self.assertRegex(self.finding("address", "rdma-address", "problem", 1),
                         r"rxe0 port 1 \(dummy0\) has no IPv4 address.*ip addr add .* dev dummy0")

    def test_too_little_memory_to_lock(self):
        self.assertIn("65536 bytes", self.finding("memory", "locked-memory", "problem", 1))

    def test_a_device_file_that_is_forbidden_or_missing(self):
        self.assertIn("may not open /dev/infiniband/uverbs0",
                      self.finding("permission", "rdma-permission", "problem", 1))
        self.assertIn("there is no /dev/infiniband/uverbs0", self.finding("node", "rdma-node", "problem", 1))

    def test_an_interface_that_is_down(self):
        self.assertRegex(self.finding("down", "rdma-port", "problem", 1),
                         "rxe0 port 1 is down.*ip link set dummy0 up")

    def test_no_device(self):
        self.finding("device", "rdma-device", "problem", 1)


if __name__ == "__main__":
    unittest.main()
