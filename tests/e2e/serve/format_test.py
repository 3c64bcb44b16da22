"""Answers in a form that the request demands: JSON, schemas, expressions, grammars."""

import itertools
import json
import re
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import harness
import serving

import jsonschema  # from serving.packages()
import ollama
import openai

SCHEMAS = json.loads((harness.SOURCE / "tests/data/schemas/schemas.json").read_text("utf-8"))
RUNS = 10  # of each schema


def said(text):
    return [{"role": "user", "content": text}]


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


class FormatCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server, timeout=300)

    def chat(self, prompt, **options):
        options = {"temperature": 0.8, "max_tokens": 200, "seed": 1, **options}
        return self.client.chat.completions.create(
            model=self.server.name, messages=said(prompt), **options)

    def text(self, prompt, **options):
        return self.chat(prompt, **options).choices[0].message.content

    def metric(self, name):
        """The sum of a metric's values."""
        found = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", self.server.get("/metrics")[1],
                           re.MULTILINE)
        return sum(map(float, found))

    def check(self, text, schema, name):
        value = json.loads(text)
        validator = jsonschema.validators.validator_for(schema)
        validator(schema, format_checker=validator.FORMAT_CHECKER).validate(value)
        self.assertNotRegex(text, r"\s{21}", name)
        return value


class SchemaTest(FormatCase):
    def test_200_answers_to_20_schemas_validate(self):
        self.assertEqual(len(SCHEMAS), 20)

        def run(job):
            entry, seed = job
            answer = self.chat(entry["prompt"], seed=seed,
                               response_format=format_of(entry["schema"]))
            return entry, seed, answer.choices[0]

        jobs = list(itertools.product(SCHEMAS, range(RUNS)))
        start = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(run, jobs))
        self.assertEqual(len(answers), 200)
        for entry, seed, choice in answers:
            with self.subTest(schema=entry["name"], seed=seed):
                self.assertEqual(choice.finish_reason, "stop", choice.message.content)
                self.check(choice.message.content, entry["schema"], entry["name"])
        print(f"200 answers in {time.monotonic() - start:.1f} s")
        # Alone it is the same answer as among 16.
        for entry, seed, choice in answers[::23]:
            self.assertEqual(run((entry, seed))[2].message.content, choice.message.content)

    def test_a_mask_costs_less_than_a_twentieth_of_a_step(self):
        def counters():
            return [self.metric(name) for name in (
                "shoal:grammar_seconds_total", "shoal:grammar_tokens_total",
                "vllm:inter_token_latency_seconds_sum", "vllm:inter_token_latency_seconds_count")]

        before = counters()
        for entry in SCHEMAS:
            self.text(entry["prompt"], response_format=format_of(entry["schema"]))
        self.text("Write a long story in JSON.", max_tokens=100,
                  response_format={"type": "json_object"})
        seconds, tokens, latency, gaps = (b - a for a, b in zip(before, counters()))
        share = (seconds / tokens) / (latency / gaps)
        print(f"{1e6 * seconds / tokens:.0f} us for each of {tokens:.0f} masks, "
              f"{100 * share:.1f} % of a step")
        self.assertGreater(tokens, 300)
        self.assertLess(share, 0.05)

    def test_c52_an_object_parses_wherever_it_ends_by_itself(self):
        ended = 0
        for seed in range(4):
            choice = self.chat("Describe yourself as a JSON object.", seed=seed, max_tokens=100,
                               response_format={"type": "json_object"}).choices[0]
            self.assertNotRegex(choice.message.content, r"\s{21}")
            if choice.finish_reason == "stop":
                ended += 1
                self.assertIsInstance(json.loads(choice.message.content), dict)
        self.assertGreater(ended, 0)

    def test_an_answer_that_is_cut_ends_with_length(self):
        choice = self.chat("Describe a person.", max_tokens=3,
                           response_format=format_of(SCHEMAS[0]["schema"])).choices[0]
        self.assertEqual(choice.finish_reason, "length")
        self.assertTrue('{"name": "'.startswith(choice.message.content[:10]))

    def test_what_else_a_request_may_say_goes_with_it(self):
        entry = SCHEMAS[0]
        options = {"response_format": format_of(entry["schema"]), "n": 3, "logprobs": True,
                   "top_logprobs": 2, "presence_penalty": 0.5, "frequency_penalty": 0.3,
                   "extra_body": {"ignore_eos": True, "repetition_penalty": 1.1, "min_p": 0.01}}
        choices = self.chat(entry["prompt"], **options).choices
        self.assertEqual(len(choices), 3)
        for choice in choices:
            self.check(choice.message.content, entry["schema"], entry["name"])
            tokens = choice.logprobs.content
            self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(),
                             choice.message.content)
        streamed = {}
        for chunk in self.chat(entry["prompt"], stream=True, **options):
            for choice in chunk.choices:
                streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
        self.assertEqual(streamed, {c.index: c.message.content for c in choices})
        greedy = self.chat(entry["prompt"], temperature=0, stop=['": '],
                           response_format=format_of(entry["schema"])).choices[0]
        self.assertEqual(greedy.message.content, '{"name')
        self.assertEqual(greedy.finish_reason, "stop")


class OtherFormsTest(FormatCase):
    def test_expressions_choices_and_grammars(self):
        gbnf = 'root ::= "(" ([a-z]{1,4} | root)? ")"'
        lark = 'start: "x" NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]{1,3}/\n'
        cases = [({"guided_regex": "[A-C]{3}-[0-9]{2}"}, r"[A-C]{3}-[0-9]{2}"),
                 ({"guided_choice": ["left", "right (and back)"]}, r"left|right \(and back\)"),
                 ({"grammar": gbnf}, r"\(+[a-z]{0,4}\)+"),
                 ({"guided_grammar": lark}, r"x[0-9]{1,3}(\+[0-9]{1,3})*"),
                 ({"structured_outputs": {"regex": "a{2,5}"}}, "a{2,5}"),
                 ({"guided_json": '{"type": "boolean"}'}, "true|false")]
        for body, pattern in cases:
            for seed in range(3):
                choice = self.chat("Go on.", seed=seed, max_tokens=60, extra_body=body).choices[0]
                if choice.finish_reason == "stop":
                    self.assertRegex(choice.message.content, f"^(?:{pattern})$", body)
        completion = self.client.completions.create(
            model=self.server.name, prompt="The answer is", seed=1,
            extra_body={"guided_choice": ["yes", "no"]})
        self.assertIn(completion.choices[0].text, ["yes", "no"])

    def test_ollamas_format(self):
        client = ollama.Client(host=self.server.url)
        entry = SCHEMAS[0]
        answer = client.chat(model=self.server.name, messages=said(entry["prompt"]),
                             format=entry["schema"], options={"seed": 1, "num_predict": 200})
        self.check(answer.message.content, entry["schema"], entry["name"])
        answer = client.generate(model=self.server.name, prompt="A JSON object.", format="json",
                                 options={"seed": 1, "num_predict": 60})
        self.assertTrue(answer.response.startswith("{"))

    def test_c52_what_cannot_be_enforced_is_refused_with_the_reason(self):
        refused = [({"type": "objekt"}, "#/type"),
                   ({"type": "array", "uniqueItems": True}, "uniqueItems"),
                   ({"$ref": "#"}, "$ref"),
                   ({"type": "string", "pattern": "a" * 100_000}, "pattern"),
                   ({"type": "string", "pattern": "(a"}, "a")]
        for schema, words in refused:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat("Go on.", response_format=format_of(schema))
            self.assertEqual(caught.exception.param, "response_format")
            self.assertIn(words, caught.exception.message)
        deep = "{\"items\":" * 1000 + "true" + "}" * 1000
        with self.assertRaises(openai.BadRequestError):
            self.chat("Go on.", extra_body={"guided_json": deep})
        with self.assertRaises(openai.BadRequestError):
            self.chat("Go on.", extra_body={"guided_regex": "a" * 100_000})
        tree = {"type": "object", "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
                "required": ["left"], "additionalProperties": False}
        choice = self.chat("A tree.", max_tokens=60, response_format=format_of(tree)).choices[0]
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content), tree)
        self.assertEqual(self.server.get("/health")[0], 200)


if __name__ == "__main__":
    unittest.main()
