"""`shoal serve` on two nodes, as Anthropic's and Ollama's own Python clients use it."""

import unittest

import harness
import serving

import anthropic  # from serving.packages()
import ollama

QUESTION = [{"role": "user", "content": "Name the capital of France."}]


class AnthropicTest(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0,
                                         timeout=120)

    def create(self, **options):
        return self.client.messages.create(
            **{"model": self.server.name, "max_tokens": 24, "messages": QUESTION, **options})

    def test_an_answer_is_that_of_shoal_run(self):
        answer = self.create(extra_body={"temperature": 0})
        run = self.succeed_json("run", harness.demo_model(), QUESTION[0]["content"], "--nodes", "2",
                                "--temperature", "0", "-n", "24")
        self.assertEqual(answer.content[0].text, run["text"])
        usage = answer.usage
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, len(run["prompt_ids"]))
        self.assertEqual(usage.output_tokens, len(run["ids"]))

    def test_a_stream_has_the_same_text(self):
        whole = self.create(extra_body={"temperature": 0})
        with self.client.messages.stream(model=self.server.name, max_tokens=24, messages=QUESTION,
                                         extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_system_stop_and_limit(self):
        answer = self.create(system="You are a pirate.", max_tokens=3,
                             messages=[{"role": "user", "content": "Tell me a long story."}])
        self.assertEqual(answer.stop_reason, "max_tokens")
        text = self.create(extra_body={"temperature": 0}).content[0].text
        word = text.split()[2]
        cut = self.create(stop_sequences=[word], extra_body={"temperature": 0})
        self.assertEqual((cut.stop_reason, cut.stop_sequence), ("stop_sequence", word))
        self.assertEqual(cut.content[0].text, text[:text.index(word)])

    def test_tokens_are_counted(self):
        counted = self.client.messages.count_tokens(model=self.server.name, messages=QUESTION)
        usage = self.create(max_tokens=1).usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_are_told(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="claude-opus")
        self.create(output_config={"effort": "high"}, max_tokens=1)  # as without
        for options in ({"max_tokens": 0}, {"messages": []}, {"tools": [{"name": "f"}]},
                        {"output_config": {"effort": "low"}}):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.create(**options)
            self.assertIn(next(iter(options)), str(caught.exception))


class OllamaTest(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = ollama.Client(host=cls.server.url, timeout=120)

    def chat(self, **options):
        return self.client.chat(model=self.server.name, messages=QUESTION,
                                options={"temperature": 0, "num_predict": 24}, **options)

    def test_an_answer_is_that_of_shoal_run(self):
        answer = self.chat()
        run = self.succeed_json("run", harness.demo_model(), QUESTION[0]["content"], "--nodes", "2",
                                "--temperature", "0", "-n", "24")
        self.assertEqual(answer.message.content, run["text"])
        self.assertEqual(answer.prompt_eval_count, len(run["prompt_ids"]))
        self.assertEqual(answer.eval_count, len(run["ids"]))
        self.assertTrue(answer.done)

    def test_a_stream_has_the_same_text(self):
        pieces = list(self.chat(stream=True))
        self.assertEqual("".join(piece.message.content for piece in pieces),
                         self.chat().message.content)
        self.assertEqual([piece.done for piece in pieces][-1], True)

    def test_a_prompt_is_answered(self):
        options = {"temperature": 0, "num_predict": 8}
        answer = self.client.generate(self.server.name, QUESTION[0]["content"], options=options)
        self.assertTrue(self.chat().message.content.startswith(answer.response))
        raw = self.client.generate(self.server.name, "Once upon a", raw=True, options=options)
        self.assertTrue(raw.response)

    def test_the_model_is_listed_and_shown(self):
        (model,) = self.client.list().models
        self.assertEqual(model.model, self.server.name)
        self.assertGreater(model.size, 10**7)
        self.assertEqual(self.client.show(model.model).details.family, "llama")
        self.assertEqual([one.model for one in self.client.ps().models], [model.model])

    def test_errors_are_told(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.chat(model="llama3.2", messages=QUESTION)
        self.assertEqual(caught.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.chat(format={"type": "objekt"})
        self.assertIn("format", caught.exception.error)


if __name__ == "__main__":
    unittest.main()
