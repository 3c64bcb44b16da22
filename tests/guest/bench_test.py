"""`shoal bench fabric` over a real RDMA device, soft-RoCE's, in a guest (guest.py): one boot."""

import json
import unittest

import guest
import harness

RUN = "{ $SHOAL bench fabric --link verbs --json %s 2>/tmp/error || { cat /tmp/error; exit 1; }; }"


class FabricBenchInGuestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        script = "\n".join((f"SHOAL={harness.SHOAL}", RUN % "--seconds 1 --sizes 64,64K", "echo ==",
                            RUN % "--poll --rounds 20 --sizes 64 --operations round-trip,stream"))
        output = guest.run_script(script, "--seconds", "200", "--processors", "4")
        cls.asleep, cls.polling = map(json.loads, output.split("==\n"))

    def test_everything_is_measured_and_the_port_is_named(self):
        self.assertEqual((self.asleep["nodes"], self.asleep["poll"], self.asleep["missing"]), (2, False, []))
        link, = self.asleep["links"]
        port, = link["ports"]
        self.assertEqual((link["link"], port["device"], port["number"], port["mtu"]),
                         ("verbs", "rxe0", 1, 4096))
        self.assertGreaterEqual(port["gid_index"], 0)
        pair, = link["pairs"]
        for lists, key in ((pair["round_trip"], "one_way_seconds"), (pair["stream"], "bytes_per_second"),
                           (pair["both_ways"], "bytes_per_second"), (link["all_gather"], "seconds"),
                           (link["broadcast"], "seconds")):
            self.assertEqual([entry["bytes"] for entry in lists], [64, 65536])
            for entry in lists:
                self.assertGreater(entry[key]["median"], 0)
        self.assertEqual({(entry["bytes"], entry["algorithm"]) for entry in link["all_reduce"]},
                         {(size, name) for size in (64, 65536) for name in ("chosen", "one-shot", "scatter-gather")})
        for entry in pair["stream"]:
            self.assertGreater(entry["overall_bytes_per_second"], 0)

    def test_ranks_that_poll_are_measured_too(self):
        self.assertTrue(self.polling["poll"])
        pair, = self.polling["links"][0]["pairs"]
        self.assertEqual((len(pair["round_trip"]), pair["round_trip"][0]["rounds"]), (1, 20))
        self.assertEqual((len(pair["stream"]), pair["stream"][0]["rounds"]), (1, 1), "32 messages at least")


if __name__ == "__main__":
    unittest.main()
