"""tools/make_model.py: files of every type and family load, compute, and are the same every time."""

import hashlib
import math
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness

TOOL = harness.SOURCE / "tools/make_model.py"
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
         "Q6_K", "Q4_K_M", "IQ4_NL", "IQ4_XS", "MXFP4")
TEXT = "hello there, world"


class MakeModelTest(harness.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, *options, name="model.gguf"):
        return harness.make_model(self.folder / name, *options)

    def logits(self, model):
        path = self.folder / "logits"
        self.succeed("run", model, TEXT, "--raw", "-n", "1", "-q", "--threads", "1", "--logits", path)
        data = path.read_bytes()
        return struct.unpack(f"<{len(data) // 4}f", data)

    def types_of(self, model):
        types = self.succeed_json("info", model)["types"]
        return {name: share["tensors"] for name, share in types.items()}

    def test_every_type_computes_at_the_same_scale(self):
        for kind in TYPES:
            with self.subTest(type=kind):
                model = self.make("--preset", "tiny-k", "--type", kind)
                self.assertIn(kind.removesuffix("_M"), self.types_of(model))
                values = self.logits(model)
                deviation = math.sqrt(sum(x * x for x in values) / len(values))
                # The norm before it and the head's scale make logits of deviation 1: of 320 the
                # sample's own spread is far below a half.
                self.assertTrue(0.5 < deviation < 2, deviation)

    def test_every_family_loads_with_its_tokenizer_and_template(self):
        for preset, family in (("tiny", "llama"), ("tiny-qwen2", "qwen2"), ("tiny-qwen3", "qwen3")):
            with self.subTest(preset=preset):
                model = self.make("--preset", preset, "--type", "Q8_0")
                self.assertEqual(self.succeed_json("info", model)["config"]["family"], family)
                ids = self.succeed_json("tokenize", model, TEXT)["ids"]
                self.assertLess(len(ids), len(TEXT) + 3)
                answer = self.succeed_json("run", model, TEXT, "-n", "4", "--temperature", "0")
                self.assertIn(f"user: {TEXT}", answer["prompt"])
                two = self.succeed_json("run", model, TEXT, "-n", "4", "--temperature", "0",
                                        "--nodes", "2")
                self.assertEqual(answer["ids"][0], two["ids"][0])

    def test_the_mix_of_q4_k_m_is_that_of_other_quantizers(self):
        model = self.make("--preset", "tiny-k", "--layers", "16", "--type", "Q4_K_M")
        # Of 16 layers, 0, 1, 14 and 15 and every third from 4 on: 4, 7, 10, 13; two matrices each,
        # and the output head.
        self.assertEqual(self.types_of(model), {"Q4_K": 1 + 16 * 7 - 16, "Q6_K": 17, "F32": 33})
        pure = self.make("--preset", "tiny-k", "--type", "Q4_0", "--pure")
        self.assertNotIn("Q6_K", self.types_of(pure))
        narrow = self.make("--preset", "tiny", "--type", "Q4_K_M")
        self.assertEqual(set(self.types_of(narrow)), {"F32", "Q5_0", "Q8_0"})
        narrow = self.make("--preset", "tiny", "--type", "IQ4_XS")
        self.assertEqual(set(self.types_of(narrow)), {"F32", "IQ4_NL", "Q8_0"})

    def test_one_seed_gives_one_file(self):
        def digest(seed):
            path = self.make("--preset", "tiny", "--type", "Q4_1", "--seed", str(seed))
            return hashlib.sha256(path.read_bytes()).hexdigest()
        self.assertEqual(digest(3), digest(3))
        self.assertNotEqual(digest(3), digest(4))

    def test_what_cannot_be_made_is_refused_in_one_line(self):
        for options in (("--heads", "3", "--kv-heads", "2"), ("--hidden", "50", "--type", "Q4_0"),
                        ("--vocab", "100"), ("--preset", "tiny", "--vocab", "600000"),
                        ("--type", "F16", "--shards", "22"), ("--type", "F16", "--shards", "0"),
                        ("--type", "Q4_0", "--format", "safetensors"),
                        ("--preset", "tiny-qwen3", "--vocab", "600000")):
            with self.subTest(options=options):
                path = self.folder / "no.gguf"
                done = subprocess.run([TOOL, *options, "-o", path], capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("make_model.py: ", done.stderr.splitlines()[-1])
                self.assertNotIn("Traceback", done.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
