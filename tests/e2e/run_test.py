"""`shoal run`: answers of the demo model on 1, 2 and 3 nodes, and everything that shapes them."""

import array
import json
import tempfile
import unittest
from pathlib import Path

import harness

# From this margin on (best minus second logit) float32 sums in another order cannot change the
# best token.
SURE_MARGIN = 0.01
# Largest difference of a logit of the exact path; see tests/data/smollm2/README.md.
EXACT_LOGIT_TOLERANCE = 0.005
END_OF_TURN = 2

LAYOUTS = [
    ["--nodes", "1"],
    ["--nodes", "2", "--link", "shm"],
    ["--nodes", "2", "--link", "tcp", "--split", "2,1"],
    ["--nodes", "3", "--link", "shm", "--split", "1,2,2"],
    ["--nodes", "3", "--link", "tcp"],
]
CAPITAL = ["Name the capital of France.", "--temperature", "0"]


def sure_tokens(case):
    """The greedy tokens up to the first one that rounding may change, without the end."""
    tokens = []
    for token, margin in zip(case["greedy_ids"], case["margins"]):
        if margin < SURE_MARGIN or token == END_OF_TURN:
            break
        tokens.append(token)
    return tokens


class ExactTest(harness.Case):
    """The exact path against an exact reader, on every kind of layout."""

    def run_case(self, case, layout, folder):
        logits = Path(folder) / "logits.f32"
        expected = sure_tokens(case)
        answer = self.succeed_json("run", harness.demo_model(), "-", "--raw", "--special",
                                   "--exact", "--temperature", "0", "-n", max(1, len(expected)),
                                   "--logits", logits, *layout, text_in=case["text"])
        self.assertEqual(answer["prompt_ids"], case["ids"])
        self.assertEqual(answer["ids"][:len(expected)], expected)
        row = array.array("f")
        row.frombytes(logits.read_bytes())
        for token, logit in case["top10"]:
            self.assertAlmostEqual(row[token], logit, delta=EXACT_LOGIT_TOLERANCE)

    def test_greedy_tokens_and_logits_are_those_of_an_exact_reader(self):
        cases = harness.reference()["cases"]
        with tempfile.TemporaryDirectory() as folder:
            for index, case in enumerate(cases):
                layout = LAYOUTS[index % len(LAYOUTS)]
                with self.subTest(case=case["name"], layout=layout):
                    self.run_case(case, layout, folder)


class LayoutTest(harness.Case):
    """Default kernels: one layout always gives the same bits; every layout answers the question."""

    def test_every_layout_answers(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "16",
                                           *layout)
                self.assertIn("Paris", answer["text"])
                self.assertEqual(len(answer["nodes"]), int(layout[1]))
                self.assertTrue(all(node["weight_bytes"] > 0 for node in answer["nodes"]))

    def test_two_runs_of_one_layout_give_the_same_bits(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout), tempfile.TemporaryDirectory() as folder:
                bits = []
                for run in range(2):
                    path = Path(folder) / f"{run}.f32"
                    answer = self.succeed_json("run", harness.demo_model(), "Tell me a story.",
                                               "--seed", "7", "-n", "24", "--logits", path,
                                               *layout)
                    bits.append((answer["ids"], path.read_bytes()))
                self.assertEqual(bits[0], bits[1])

    def test_a_node_for_each_numa_domain_answers_and_says_what_was_found(self):
        run = harness.shoal("run", harness.demo_model(), *CAPITAL, "-n", "8", "--nodes", "numa",
                            "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("NUMA domain", run.stderr)
        answer = json.loads(run.stdout)
        self.assertIn("Paris", answer["text"])
        nodes = len(answer["nodes"])
        domains = [node["numa_domain"] for node in answer["nodes"] if "numa_domain" in node]
        self.assertEqual(len(set(domains)), nodes if nodes > 1 else 0)
        same = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "8", "--nodes", nodes)
        self.assertEqual(answer["ids"], same["ids"])

    def test_weights_are_shared_out(self):
        one = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "1")
        two = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "1", "--nodes", "2",
                                "--split", "2,1")
        whole = one["nodes"][0]["weight_bytes"]
        parts = [node["weight_bytes"] for node in two["nodes"]]
        self.assertLess(max(parts), 0.85 * whole)
        self.assertGreater(parts[0], parts[1])
        self.assertGreater(two["collectives"]["operations"], 0)


class KernelsTest(harness.Case):
    """Kernels by name: all answer, and those that were asked for compute, on every node."""

    def logits(self, folder, *options):
        path = Path(folder) / "logits.f32"
        answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "8", "--nodes", "2",
                                   "--threads", "1", "--logits", path, *options)
        self.assertIn("Paris", answer["text"])
        row = array.array("f")
        row.frombytes(path.read_bytes())
        return row

    def test_all_kernels_of_this_machine_answer(self):
        info = self.succeed_json("info")
        with tempfile.TemporaryDirectory() as folder:
            best = self.logits(folder)
            self.assertEqual(self.logits(folder, "--kernels", info["kernels"]), best)
            for name in info["kernels_available"]:
                with self.subTest(kernels=name):
                    row = self.logits(folder, "--kernels", name)
                    # An input's rounding to a byte may go the other way after another order of sums.
                    self.assertLess(max(abs(a - b) for a, b in zip(row, best)), 1.0)
                    # Plain loops sum in another order than any vector.
                    if name in ("exact", "portable") and name != info["kernels"]:
                        self.assertNotEqual(row, best)


class PromptTest(harness.Case):
    def test_the_chat_template_makes_the_prompt(self):
        (case,) = [c for c in harness.reference()["cases"] if c["name"] == "system"]
        system, user = (message["content"] for message in case["messages"])
        answer = self.succeed_json("run", harness.demo_model(), user, "--system", system,
                                   "-n", "1")
        self.assertEqual(answer["prompt"], case["text"])
        self.assertEqual(answer["prompt_ids"], case["ids"])

    def test_a_whole_conversation_comes_from_a_file(self):
        (case,) = [c for c in harness.reference()["cases"] if c["name"] == "turns"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "messages.json"
            path.write_text(json.dumps(case["messages"]))
            answer = self.succeed_json("run", harness.demo_model(), "--messages", path, "-n", "1")
        self.assertEqual(answer["prompt_ids"], case["ids"])

    def test_standard_input_is_a_prompt(self):
        text = self.succeed("run", harness.demo_model(), "-", "--temperature", "0", "-n", "16",
                            text_in="Name the capital of France.")
        self.assertIn("Paris", text)

    def test_a_pipe_without_a_prompt_is_a_chat(self):
        text = self.succeed("run", harness.demo_model(), "--temperature", "0", "-n", "20",
                            text_in="My name is Ada.\nName the capital of France.\n/exit\n")
        self.assertIn("Paris", text)

    def test_raw_text_is_continued_without_a_template(self):
        answer = self.succeed_json("run", harness.demo_model(), "1, 2, 3, 4, 5, 6,", "--raw",
                                   "--temperature", "0", "-n", "4")
        self.assertTrue(answer["text"].startswith(" 7"))
        self.assertNotIn(1, answer["prompt_ids"])


class TemplateTest(harness.Case):
    """Models whose chat template is missing, broken, or refuses the conversation."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def patched(self, patch):
        """A copy of the demo model with other bytes in its metadata, of the same length."""
        whole = bytearray(Path(harness.demo_model()).read_bytes())
        head = patch(bytes(whole[:4 << 20]))
        self.assertEqual(len(head), 4 << 20)
        whole[:len(head)] = head
        path = Path(self.folder.name) / "patched.gguf"
        path.write_bytes(whole)
        return path

    def with_template(self, template):
        key = b"tokenizer.chat_template"

        def patch(head):
            start = head.index(key) + len(key) + 4  # the value's type, then its length
            length = int.from_bytes(head[start:start + 8], "little")
            text = template.encode().ljust(length)
            self.assertEqual(len(text), length)
            return head[:start + 8] + text + head[start + 8 + length:]
        return self.patched(patch)

    def test_c36_a_model_without_a_template_says_how_to_use_it(self):
        model = self.patched(lambda head: head.replace(b"tokenizer.chat_template",
                                                       b"tokenizer.chat_templatX"))
        self.fail_with("run", model, "hi", says=["chat template", "--raw"])
        self.fail_with("run", model, says=["chat template", "--raw"])
        self.assertTrue(self.succeed("run", model, "1, 2, 3,", "--raw", "-n", "2"))

    def test_c31_a_broken_template_leaves_plain_text_usable(self):
        model = self.with_template("a{% foo %}b")
        self.fail_with("run", model, "hi", says=["foo", "--raw"])
        self.assertTrue(self.succeed("run", model, "1, 2, 3,", "--raw", "-n", "2"))
        self.assertIn("unusable", self.succeed("info", model))

    def test_c34_a_template_that_refuses_is_heard(self):
        model = self.with_template("{% for m in messages %}{% if m.role == 'system' %}"
                                   "{{ raise_exception('no system role here') }}{% endif %}"
                                   "{{ m.content }}{% endfor %}")
        self.fail_with("run", model, "hi", "--system", "x", says="no system role here")
        self.assertTrue(self.succeed("run", model, "hi", "-n", "2"))
        chat = harness.shoal("run", model, "--system", "x", "-n", "2", "--stats",
                             text_in="hi\n/system\nhi\n")
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertEqual(chat.stderr.count("no system role here"), 1)
        self.assertEqual(chat.stderr.count("prefill"), 1)


class SamplingTest(harness.Case):
    def ids(self, *options):
        return self.succeed_json("run", harness.demo_model(), "Tell me a story.", "-n", "24",
                                 *options)

    def test_a_seed_repeats_an_answer(self):
        first = self.ids("--temperature", "1", "--seed", "42")
        self.assertEqual(first["ids"], self.ids("--temperature", "1", "--seed", "42")["ids"])
        self.assertNotEqual(first["ids"], self.ids("--temperature", "1", "--seed", "43")["ids"])
        self.assertEqual(first["seed"], 42)

    def test_the_printed_random_seed_repeats_an_answer(self):
        first = self.ids("--temperature", "1")
        again = self.ids("--temperature", "1", "--seed", str(first["seed"]))
        self.assertEqual(first["ids"], again["ids"])
        self.assertNotEqual(first["seed"], self.ids("--temperature", "1", "--seed", "-1")["seed"])

    def test_seeds_at_the_ends_of_the_range_are_seeds(self):
        for seed in (0, 2**31, 2**63 - 1, 2**64 - 1):
            with self.subTest(seed=seed):
                answer = self.succeed_json("run", harness.demo_model(), "hi", "-n", "1",
                                           "--seed", seed)
                self.assertEqual(answer["seed"], seed)

    def test_a_stop_string_ends_the_answer_before_itself(self):
        free = self.ids("--temperature", "0")
        stop = free["text"][10:16]
        stopped = self.ids("--temperature", "0", "--stop", stop)
        self.assertEqual(stopped["text"], free["text"][:free["text"].index(stop)])
        self.assertEqual(stopped["stop"], stop)

    def test_text_that_only_begins_a_stop_string_is_kept(self):
        free = self.ids("--temperature", "0")
        kept = self.ids("--temperature", "0", "--stop", free["text"][-3:] + "QZX")
        self.assertEqual(kept["text"], free["text"])
        self.assertIsNone(kept["stop"])

    def test_the_end_is_never_chosen_when_ignored(self):
        answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "40",
                                   "--ignore-end")
        self.assertEqual(len(answer["ids"]), 40)
        self.assertNotIn(END_OF_TURN, answer["ids"])

    def test_a_bias_bans_a_token(self):
        free = self.ids("--temperature", "0")
        banned = self.ids("--temperature", "0", "--logit-bias", f"{free['ids'][0]}=-1000")
        self.assertNotIn(free["ids"][0], banned["ids"])
        self.fail_with("run", harness.demo_model(), "hi", "--logit-bias", "49152=1",
                       says="logit_bias")


class OutputTest(harness.Case):
    def test_the_streamed_text_is_that_of_the_json(self):
        streamed = self.succeed("run", harness.demo_model(), *CAPITAL, "-n", "32")
        whole = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "32")
        self.assertEqual(streamed, whole["text"] + "\n")
        self.assertEqual(whole["stop_reason"], "end_of_generation")

    def test_the_figures_of_prefill_and_decode_are_apart(self):
        answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "-n", "5",
                                   "--ignore-end", "--nodes", "2")
        self.assertEqual(answer["prefill"]["tokens"], len(answer["prompt_ids"]))
        self.assertEqual(answer["decode"]["tokens"], 4)
        for part in ("prefill", "decode"):
            self.assertGreater(answer[part]["tokens_per_second"], 0)
        self.assertGreater(answer["collectives"]["seconds"], 0)
        self.assertGreater(answer["load_seconds"], 0)
        self.assertGreater(answer["start_to_first_token_seconds"], answer["load_seconds"])

    def test_stats_go_to_standard_error(self):
        result = harness.shoal("run", harness.demo_model(), *CAPITAL, "-n", "4", "--stats",
                               "--nodes", "2")
        for words in ("prefill", "decode", "collectives", "node-1", "first token", "loaded in"):
            self.assertIn(words, result.stderr)
        self.assertNotIn("seed", result.stderr)
        drawn = harness.shoal("run", harness.demo_model(), "hi", "-n", "4", "--stats", "--seed", "7")
        self.assertIn("seed 7", drawn.stderr)

    def test_the_end_of_the_context_ends_the_answer(self):
        answer = self.succeed_json("run", harness.demo_model(), *CAPITAL, "--ctx", "64",
                                   "--ignore-end")
        self.assertLessEqual(len(answer["prompt_ids"]) + len(answer["ids"]), 65)
        self.assertGreaterEqual(len(answer["prompt_ids"]) + len(answer["ids"]), 64)


if __name__ == "__main__":
    unittest.main()
