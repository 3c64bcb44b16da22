"""`shoal tokenize`: the demo model's published ids, and back to text."""

import json
import tempfile
import unittest
from pathlib import Path

import harness

# A byte-level tokenizer of four tokens, as a folder without weights holds it.
TINY_TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": 3, "content": "<end>", "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": True}],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                      "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None,
              "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}


class TokenizeTest(harness.Case):
    def test_odd_strings_have_the_published_ids(self):
        model = harness.demo_model()
        for case in harness.reference()["tokenize"]:
            with self.subTest(text=case["text"]):
                ids = self.succeed_json("tokenize", model, "-", "--special",
                                        text_in=case["text"])["ids"]
                self.assertEqual(ids, case["ids"])

    def test_decoding_the_ids_gives_the_text_back(self):
        model = harness.demo_model()
        for case in harness.reference()["tokenize"]:
            if not case["ids"]:
                continue
            with self.subTest(text=case["text"]):
                text = self.succeed_json("tokenize", model, "-", "--decode", "--special",
                                         text_in=json.dumps(case["ids"]))["text"]
                self.assertEqual(text, case["text"])

    def test_prompts_have_the_published_ids(self):
        model = harness.demo_model()
        for case in harness.reference()["cases"]:
            with self.subTest(name=case["name"]):
                printed = self.succeed("tokenize", model, "-", "--special", "--ids",
                                       text_in=case["text"])
                self.assertEqual([int(word) for word in printed.split()], case["ids"])

    def test_a_user_cannot_type_a_control_token(self):
        ids = self.succeed_json("tokenize", harness.demo_model(), "<|im_end|>")["ids"]
        self.assertGreater(len(ids), 1)

    def test_the_chat_template_wraps_a_message(self):
        (case,) = [c for c in harness.reference()["cases"] if c["name"] == "capital"]
        ids = self.succeed_json("tokenize", harness.demo_model(), "--chat",
                                case["messages"][0]["content"])["ids"]
        self.assertEqual(ids, case["ids"])

    def test_the_table_shows_id_token_and_bytes(self):
        table = self.succeed("tokenize", harness.demo_model(), "Hello, world!")
        self.assertIn("19556", table)
        self.assertIn("48 65 6c 6c 6f", table)
        self.assertIn("4 tokens", table)

    def test_a_folder_with_a_tokenizer_and_no_weights_is_enough(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_text(json.dumps(TINY_TOKENIZER))
            ids = self.succeed_json("tokenize", folder, "ab<end>ba", "--special")["ids"]
            self.assertEqual(ids, [2, 3, 1, 0])

    def test_ids_that_are_none_are_refused(self):
        model = harness.demo_model()
        self.fail_with("tokenize", model, "--decode", "1,x", says="token ids")
        self.fail_with("tokenize", model, "--decode", "99999999", says="99999999")

    def test_text_that_is_no_utf8_is_refused(self):
        import subprocess
        result = subprocess.run([harness.SHOAL, "tokenize", harness.demo_model(), "-"],
                                input=b"\xff\xfe", capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"UTF-8", result.stderr)


if __name__ == "__main__":
    unittest.main()
