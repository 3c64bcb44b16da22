"""OpenAI's Responses API of `shoal serve` on two nodes, through OpenAI's own Python client."""

import unittest

import harness
import serving

import openai  # from serving.packages()

QUESTION = "Name the capital of France."
STORY = "Write a long story about a lighthouse."


class ResponsesTest(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server)

    def create(self, content=QUESTION, **options):
        return self.client.responses.create(
            input=content,
            **{"model": self.server.name, "temperature": 0, "max_output_tokens": 24, **options})

    def test_an_answer_is_that_of_shoal_run(self):
        answer = self.create()
        run = self.succeed_json("run", harness.demo_model(), QUESTION, "--nodes", "2",
                                "--temperature", "0", "-n", "24")
        self.assertEqual(answer.output_text, run["text"])
        self.assertEqual(answer.usage.input_tokens, len(run["prompt_ids"]))
        self.assertEqual(answer.usage.output_tokens, len(run["ids"]))
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.input_tokens + answer.usage.output_tokens)
        self.assertEqual((answer.status, answer.error), ("completed", None))

    def test_a_stream_has_the_same_text_in_the_documented_events(self):
        whole = self.create()
        events = list(self.create(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        names = [event.type.removeprefix("response.") for event in events]
        self.assertEqual([name for name in names if name != "output_text.delta"],
                         ["created", "in_progress", "output_item.added", "content_part.added",
                          "output_text.done", "content_part.done", "output_item.done", "completed"])
        self.assertGreater(names.count("output_text.delta"), 2)
        text = "".join(event.delta for event in events
                       if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertEqual(events[-1].response.output_text, text)
        self.assertEqual(events[-1].response.usage.output_tokens, whole.usage.output_tokens)

    def test_the_clients_own_stream_helper_follows_it(self):
        with self.client.responses.stream(model=self.server.name, input=QUESTION, temperature=0,
                                          max_output_tokens=24) as stream:
            snapshots = [event.snapshot for event in stream
                         if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        self.assertEqual(final.output_text, self.create().output_text)
        self.assertEqual(snapshots[-1], final.output_text)

    def test_the_limit_leaves_it_incomplete(self):
        answer = self.create(STORY, max_output_tokens=3)
        self.assertEqual(answer.status, "incomplete")
        self.assertEqual(answer.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(answer.usage.output_tokens, 3)
        last = list(self.create(STORY, max_output_tokens=3, stream=True))[-1]
        self.assertEqual(last.type, "response.incomplete")

    def test_a_conversation_goes_on_with_its_items(self):
        first = self.create(STORY, instructions="You are a sailor.", max_output_tokens=40)
        items = [{"role": "user", "content": STORY}, *first.output,
                 {"role": "user", "content": [{"type": "input_text", "text": "And then?"}]}]
        second = self.create(items, instructions="You are a sailor.", metadata={"topic": "sea"})
        self.assertTrue(second.output_text)
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)
        self.assertEqual(second.metadata, {"topic": "sea"})
        self.assertEqual(second.instructions, "You are a sailor.")

    def test_logprobs(self):
        answer = self.create(include=["message.output_text.logprobs"], top_logprobs=2)
        tokens = answer.output[0].content[0].logprobs
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(),
                         answer.output_text)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(token.top_logprobs[0].token, token.token)  # greedy

    def test_errors_name_what_is_wrong(self):
        for options in ({"previous_response_id": "resp_1"}, {"store": True}, {"background": True},
                        {"truncation": "auto"}, {"max_output_tokens": 0}, {"temperature": 3},
                        {"content": []}, {"content": "word " * 10_000}):
            with self.subTest(options=list(options)):
                with self.assertRaises(openai.BadRequestError) as caught:
                    self.create(**options)
                name = next(iter(options))
                self.assertEqual(caught.exception.param, "input" if name == "content" else name)
        with self.assertRaises(openai.NotFoundError):
            self.create(model="gpt-4o")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")

    def test_a_client_that_goes_ends_its_answer(self):
        before = self.server.metric("vllm:generation_tokens_total")
        stream = self.create(STORY, stream=True, max_output_tokens=5000, temperature=1)
        for _, _event in zip(range(6), stream):
            pass
        stream.close()
        self.wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0,
                        "the request to end")
        self.assertLess(self.server.metric("vllm:generation_tokens_total") - before, 4000)


if __name__ == "__main__":
    unittest.main()
