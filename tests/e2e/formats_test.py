"""One model in every form that files have: GGUF, whole and split; a safetensors folder, whole and
sharded. All answer alike, and what info, plan and serve tell of them is the same."""

import array
import json
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import harness
import serving

TEXT = "hello there, world"
# The forms add the same numbers in other orders.
LOGIT_TOLERANCE = 1e-4


class FormsCase(harness.Case):
    """Forms of a tiny model with weights of F32, each in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, name, *options, preset="tiny"):
        path = self.folder / preset / name
        path.parent.mkdir(parents=True, exist_ok=True)
        harness.make_model(path, "--preset", preset, "--type", "F32", *options)
        return path

    def make_whole(self, preset="tiny"):
        return self.make("whole.gguf", preset=preset)

    def make_split(self, preset="tiny"):
        """The first of three parts."""
        path = self.make("split/model.gguf", "--shards", "3", preset=preset)
        return path.with_name("model-00001-of-00003.gguf")

    def make_folder(self, preset="tiny"):
        return self.make("folder", "--format", "safetensors", preset=preset)

    def make_sharded(self, preset="tiny"):
        return self.make("sharded", "--format", "safetensors", "--shards", "3", preset=preset)

    def make_all(self, preset="tiny"):
        return [make(preset) for make in (self.make_whole, self.make_split, self.make_folder,
                                          self.make_sharded)]


class SameModelTest(FormsCase):
    def answer(self, model):
        logits = self.folder / "logits.f32"
        answer = self.succeed_json("run", model, TEXT, "-n", "6", "--temperature", "0", "--exact",
                                   "--ignore-end", "--threads", "1", "--logits", logits)
        row = array.array("f")
        row.frombytes(logits.read_bytes())
        return answer, row

    def test_c98_every_form_gives_the_same_logits_and_text(self):
        for preset in ("tiny", "tiny-qwen2", "tiny-qwen3"):
            whole, *others = self.make_all(preset)
            expected, expected_row = self.answer(whole)
            self.assertIn(f"user: {TEXT}", expected["prompt"])
            self.assertEqual(len(expected["ids"]), 6)
            for model in others:
                with self.subTest(preset=preset, model=model.name):
                    answer, row = self.answer(model)
                    for key in ("prompt", "prompt_ids", "ids", "text"):
                        self.assertEqual(answer[key], expected[key])
                    self.assertEqual(len(row), len(expected_row))
                    difference = max(abs(a - b) for a, b in zip(row, expected_row))
                    self.assertLess(difference, LOGIT_TOLERANCE)

    def test_info_tells_the_same_of_every_form(self):
        whole, split, folder, sharded = self.make_all()
        expected = self.succeed_json("info", whole)
        for model, form, files in ((whole, "GGUF v3", 1), (split, "GGUF v3, 3 parts", 3),
                                   (folder, "safetensors", 1),
                                   (sharded, "safetensors, 3 parts", 3)):
            with self.subTest(model=model.name):
                info = self.succeed_json("info", model)
                self.assertEqual(info["format"], form)
                self.assertEqual(len(info["files"]), files)
                for key in ("parameters", "tensor_bytes", "types"):
                    self.assertEqual(info[key], expected[key])
                for key in info["config"].keys() - {"name", "architecture"}:
                    self.assertEqual(info["config"][key], expected["config"][key])
                for key in ("vocabulary", "add_bos", "has_chat_template", "chat_template"):
                    self.assertEqual(info["text"][key], expected["text"][key])
                text = self.succeed("info", model, "--template")
                self.assertRegex(text, r"chat template +yes")
                self.assertIn("for message in messages", text)

    def test_plan_lays_every_form_out_alike(self):
        models = self.make_all()
        plans = [self.succeed_json("plan", model, "--nodes", "2") for model in models]
        for plan in plans[1:]:
            for key in ("ranks", "weight_bytes", "kv_bytes", "context"):
                self.assertEqual(plan[key], plans[0][key])

    def test_two_nodes_answer_from_a_folder(self):
        folder = self.make_sharded()
        one = self.succeed_json("run", folder, TEXT, "-n", "1", "--temperature", "0")
        two = self.succeed_json("run", folder, TEXT, "-n", "1", "--temperature", "0",
                                "--nodes", "2")
        self.assertEqual(one["ids"], two["ids"])

    def test_any_part_stands_for_the_whole(self):
        split, sharded = self.make_split(), self.make_sharded()
        for part in (split.with_name("model-00002-of-00003.gguf"),
                     sharded / "model-00003-of-00003.safetensors",
                     sharded / "model.safetensors.index.json"):
            with self.subTest(part=part.name):
                self.assertEqual(len(self.succeed_json("info", part)["files"]), 3)

    def test_a_part_that_is_missing_is_named_before_anything_is_read(self):
        split, sharded = self.make_split(), self.make_sharded()
        for model, part in ((split, split.with_name("model-00002-of-00003.gguf")),
                            (sharded, sharded / "model-00002-of-00003.safetensors")):
            part.unlink()
            for command in (("run", model, "hi"), ("info", model), ("plan", model)):
                with self.subTest(model=model.name, command=command[0]):
                    self.fail_with(*command, says=["1 of 3 missing", part.name])


class FolderTemplateTest(FormsCase):
    """The chat template of a safetensors folder, which lies beside the weights."""

    def test_a_template_of_its_own_file_comes_first(self):
        folder = self.make_folder()
        (folder / "chat_template.jinja").write_text("[{{ messages[0].content }}]")
        answer = self.succeed_json("run", folder, TEXT, "-n", "1")
        self.assertEqual(answer["prompt"], f"[{TEXT}]")
        self.assertIn("[{{ messages[0].content }}]", self.succeed("info", folder, "--template"))

    def test_c31_a_broken_template_leaves_plain_text_usable(self):
        folder = self.make_folder()
        (folder / "chat_template.jinja").write_text("a{% foo %}b")
        self.assertRegex(self.succeed("info", folder), r"chat template +unusable: .*foo")
        text = self.succeed_json("info", folder)["text"]
        self.assertFalse(text["has_chat_template"])
        self.assertEqual(text["chat_template"], "a{% foo %}b")
        self.assertIn("foo", text["chat_template_error"])
        self.fail_with("run", folder, "hi", says=["foo", "--raw"])
        self.assertTrue(self.succeed("run", folder, "hi", "--raw", "-n", "2"))

    def make_plain_folder(self):
        """A folder without a template."""
        folder = self.make_folder()
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text())
        del settings["chat_template"]
        path.write_text(json.dumps(settings))
        return folder

    def test_c36_a_folder_without_a_template_continues_text_only(self):
        folder = self.make_plain_folder()
        self.assertRegex(self.succeed("info", folder), r"chat template +none")
        self.fail_with("run", folder, "hi", says=["chat template", "--raw"])
        self.assertTrue(self.succeed("run", folder, "hi", "--raw", "-n", "2"))

    def post(self, server, path, body):
        """(status, JSON) of the answer."""
        request = urllib.request.Request(server.url + path,
                                         json.dumps({"model": server.name, **body}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def test_c36_a_server_without_a_template_says_what_to_do(self):
        with serving.Server(model=self.make_plain_folder()) as server:
            server.wait_until_ready()
            status, answer = self.post(server, "/v1/chat/completions",
                                       {"messages": [{"role": "user", "content": "hi"}]})
            self.assertEqual(status, 400)
            self.assertEqual(answer["error"]["code"], "no_chat_template")
            for words in ("no chat template", "/v1/completions", "chat_template.jinja"):
                self.assertIn(words, answer["error"]["message"])
            status, answer = self.post(server, "/v1/completions", {"prompt": "hi", "max_tokens": 2})
            self.assertEqual(status, 200, answer)

    def test_the_server_shows_the_template(self):
        folder = self.make_folder()
        template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
        with serving.Server(model=folder) as server:
            server.wait_until_ready()
            self.assertEqual(self.post(server, "/api/show", {})[1]["template"], template)


if __name__ == "__main__":
    unittest.main()
