"""Embeddings of `shoal serve` on two nodes, through OpenAI's and Ollama's own Python clients."""

import base64
import json
import math
import struct
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import harness
import serving

import ollama  # from serving.packages()
import openai

TEXTS = ["The cat sleeps on the warm windowsill.", "Paris", "def add(a, b):\n    return a + b",
         "Eine Übersetzung mit Umlauten: größer, schöner.", "漢字 and 👍", "word " * 300]
STORY = [{"role": "user", "content": "Write a long story about a lighthouse."}]
HIDDEN = 576  # of SmolLM2-135M
CONTEXT = 1024


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))  # both have the length 1


class EmbeddingsTest(serving.ServedCase):
    ARGUMENTS = ("--nodes", "2", "--ctx", CONTEXT)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server, timeout=240)
        cls.ollama = ollama.Client(host=cls.server.url, timeout=240)

    def create(self, texts, **options):
        return self.client.embeddings.create(model=self.server.name, input=texts, **options)

    def vectors(self, texts, **options):
        return [one.embedding for one in self.create(texts, **options).data]

    def test_every_text_has_a_vector_of_length_one_in_order(self):
        answer = self.create(TEXTS)
        self.assertEqual([one.index for one in answer.data], list(range(len(TEXTS))))
        for one in answer.data:
            self.assertEqual(len(one.embedding), HIDDEN)
            self.assertAlmostEqual(math.sqrt(cosine(one.embedding, one.embedding)), 1, places=5)
        tokens = sum(len(self.tokens(text)) for text in TEXTS)
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.total_tokens), (tokens, tokens))

    def tokens(self, text):
        return self.succeed_json("tokenize", harness.demo_model(), text)["ids"]

    def test_they_are_the_same_bits_alone_and_among_others(self):
        alone = [self.vectors(text)[0] for text in TEXTS]
        self.assertEqual(self.vectors(TEXTS), alone)
        with ThreadPoolExecutor(8) as pool:
            answer = pool.submit(self.client.chat.completions.create, model=self.server.name,
                                 messages=STORY, max_tokens=60)
            others = [pool.submit(self.vectors, list(reversed(TEXTS))) for _ in range(4)]
            for other in others:
                self.assertEqual(other.result(), list(reversed(alone)))
            answer.result()

    def test_tokens_and_formats_give_the_same_vectors(self):
        ids = [self.tokens(text) for text in TEXTS[:3]]
        wanted = self.vectors(TEXTS[:3])
        self.assertEqual(self.vectors(ids), wanted)
        self.assertEqual(self.vectors(ids[0])[0], wanted[0])
        # The client asks for base64 unless told otherwise.
        self.assertEqual(self.vectors(TEXTS[:3], encoding_format="float")[0], [
            json.loads(repr(value)) for value in self.floats(TEXTS[0])])
        raw = self.vectors(TEXTS[0], encoding_format="base64")[0]
        self.assertEqual(list(struct.unpack(f"<{HIDDEN}f", base64.b64decode(raw))), wanted[0])

    def floats(self, text):
        """The numbers as they stand in the body."""
        body = json.dumps({"model": self.server.name, "input": text}).encode()
        with urllib.request.urlopen(f"{self.server.url}/v1/embeddings", body, 60) as answer:
            return json.load(answer)["data"][0]["embedding"]

    def test_dimensions_are_cut_and_scaled(self):
        whole, cut = self.vectors("Paris")[0], self.vectors("Paris", dimensions=64)[0]
        length = math.sqrt(sum(value * value for value in whole[:64]))
        self.assertEqual(len(cut), 64)
        for a, b in zip(cut, whole):
            self.assertAlmostEqual(a, b / length, places=5)
        self.refused("dimensions", "Paris", dimensions=HIDDEN + 1)

    def refused(self, param, texts, **options):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(texts, **options)
        self.assertEqual(caught.exception.param, param)
        return caught.exception

    def test_errors_name_what_is_wrong(self):
        self.refused("input", "")
        self.refused("input", [])
        self.refused("input", ["a"] * 2049)
        self.refused("input", [10**6])
        too_long = self.refused("input", ["short", "word " * 2000])
        self.assertEqual(too_long.code, "context_length_exceeded")
        self.assertIn("input[1]", str(too_long))
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="text-embedding-3-small", input="hi")

    def test_hundreds_of_texts_neither_stop_a_stream_nor_fill_the_queue(self):
        stream = self.client.chat.completions.create(
            model=self.server.name, messages=STORY, stream=True, max_tokens=5000,
            extra_body={"ignore_eos": True})
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            embedded = pool.submit(self.vectors, [f"Text number {i}." for i in range(400)])
            chunks = 0
            for _ in stream:
                chunks += 1
                if embedded.done():
                    break
            self.assertEqual(len({tuple(one) for one in embedded.result()}), 400)
        stream.close()
        self.assertGreater(chunks, 20)

    def test_a_client_that_goes_ends_its_texts(self):
        before = self.server.metric("shoal:embeddings_total")
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.3).embeddings.create(
                model=self.server.name, input=["word " * 900] * 100)
        self.wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0,
                        "the texts to end")
        self.assertLess(self.server.metric("shoal:embeddings_total") - before, 100)

    def test_they_are_counted(self):
        before = self.server.metric("shoal:embeddings_total")
        self.vectors(TEXTS)
        self.assertEqual(self.server.metric("shoal:embeddings_total") - before, len(TEXTS))

    def test_ollamas_client_gets_the_same(self):
        answer = self.ollama.embed(self.server.name, TEXTS[:3])
        for ours, theirs in zip(self.vectors(TEXTS[:3]), answer.embeddings):
            self.assertEqual([struct.unpack("<f", struct.pack("<f", value))[0] for value in theirs],
                             ours)
        self.assertEqual(answer.prompt_eval_count, sum(len(self.tokens(one)) for one in TEXTS[:3]))
        older = self.ollama.embeddings(self.server.name, TEXTS[0])
        self.assertEqual(list(older.embedding), list(answer.embeddings[0]))
        self.assertEqual(len(self.ollama.embed(self.server.name, "Paris", dimensions=8)
                             .embeddings[0]), 8)
        cut = self.ollama.embed(self.server.name, "word " * 2000)
        self.assertEqual(cut.prompt_eval_count, CONTEXT)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.ollama.embed(self.server.name, "word " * 2000, truncate=False)
        self.assertIn(f"holds {CONTEXT}", caught.exception.error)


class LayoutsTest(harness.Case):
    def test_one_node_and_three_come_to_the_same_vectors(self):
        """Layouts differ by the order of float32 sums, and by no more."""
        found = []
        for nodes in (1, 3):
            with serving.Server("--nodes", nodes) as server:
                server.wait_until_ready()
                client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
                answer = client.embeddings.create(model=server.name, input=TEXTS)
                found.append([one.embedding for one in answer.data])
        for one, three in zip(*found):
            self.assertGreater(cosine(one, three), 0.999)


if __name__ == "__main__":
    unittest.main()
