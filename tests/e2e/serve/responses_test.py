"""OpenAI's Responses API of `shoal serve` on two nodes, through OpenAI's own Python client."""

import json
import tempfile
import unittest
from pathlib import Path
from typing import Literal

import harness
import serving

import jsonschema  # from serving.packages()
import openai
import pydantic

QUESTION = "Name the capital of France."
STORY = "Write a long story about a lighthouse."
WEATHER = {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
           "properties": {"city": {"enum": ["Oslo", "Rome"]}, "unit": {"enum": ["C", "F"]}}}
TIME = {"type": "object", "required": ["zone"], "additionalProperties": False,
        "properties": {"zone": {"enum": ["UTC", "local"]}}}
SCHEMAS = {"get_weather": WEATHER, "get_time": TIME}


class ResponsesCase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server)

    def create(self, content=QUESTION, **options):
        return self.client.responses.create(
            input=content,
            **{"model": self.server.name, "temperature": 0, "max_output_tokens": 24, **options})

    def stream(self, content=QUESTION, **options):
        """All events, each in the form that the client declares, which it does not check itself."""
        events = list(self.create(content, stream=True, **options))
        form = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)
        for number, event in enumerate(events):
            form.validate_python(event.to_dict())
            self.assertEqual(event.sequence_number, number)
        return events


class ResponsesTest(ResponsesCase):
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
        events = self.stream()
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


class Weather(pydantic.BaseModel):
    city: Literal["Oslo", "Rome"]
    degrees: Literal[1, 2, 3]


class ToolsTest(ResponsesCase):
    QUESTION = "What is the weather in Oslo?"
    TOOLS = [{"type": "function", "name": name, "description": f"{name} now", "strict": True,
              "parameters": schema} for name, schema in SCHEMAS.items()]

    def call(self, content=QUESTION, **options):
        return self.create(content, **{"max_output_tokens": 300, "tools": self.TOOLS, **options})

    def check_calls(self, items):
        self.assertTrue(items)
        self.assertEqual(len({item.call_id for item in items}), len(items))
        for item in items:
            self.assertEqual((item.type, item.status), ("function_call", "completed"))
            jsonschema.validate(json.loads(item.arguments), SCHEMAS[item.name])

    def test_required_and_named_calls(self):
        answer = self.call(tool_choice="required")
        self.check_calls(answer.output)
        self.assertEqual((answer.status, answer.output_text), ("completed", ""))
        self.assertEqual(answer.tool_choice, "required")
        self.assertEqual([tool.name for tool in answer.tools], list(SCHEMAS))
        self.assertEqual(answer.tools[0].parameters, WEATHER)
        for name in SCHEMAS:
            (item,) = self.call(tool_choice={"type": "function", "name": name}).output
            self.check_calls([item])
            self.assertEqual(item.name, name)

    def test_one_call_and_allowed_tools(self):
        allowed = {"type": "allowed_tools", "mode": "required",
                   "tools": [{"type": "function", "name": "get_time"}]}
        for seed in range(4):
            (item,) = self.call(tool_choice=allowed, parallel_tool_calls=False,
                                temperature=seed / 2).output
            self.check_calls([item])
            self.assertEqual(item.name, "get_time")

    def test_none_and_auto(self):
        none = self.call(tool_choice="none", max_output_tokens=24)
        self.assertEqual(none.output_text, self.create(self.QUESTION).output_text)
        auto = self.call()
        calls = [item for item in auto.output if item.type == "function_call"]
        if calls:
            self.check_calls(calls)
        self.assertTrue(calls or auto.output_text)

    def test_a_stream_has_the_same_calls(self):
        whole = self.call(tool_choice="required")
        events = self.stream(self.QUESTION, tools=self.TOOLS, tool_choice="required",
                             max_output_tokens=300)
        calls = []
        for event in events:
            if event.type == "response.output_item.added":
                self.assertEqual((event.output_index, event.item.arguments), (len(calls), ""))
                calls.append([event.item.name, ""])
            elif event.type == "response.function_call_arguments.delta":
                self.assertEqual(event.output_index, len(calls) - 1)
                calls[-1][1] += event.delta
            elif event.type == "response.function_call_arguments.done":
                self.assertEqual(event.arguments, calls[-1][1])
            elif event.type == "response.output_item.done":
                self.check_calls([event.item])
        self.assertEqual(calls, [[item.name, item.arguments] for item in whole.output])
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(len(events[-1].response.output), len(calls))

    def test_the_clients_own_helpers_parse_calls(self):
        class GetWeather(pydantic.BaseModel):
            city: Literal["Oslo", "Rome"]

        options = {"model": self.server.name, "input": self.QUESTION, "temperature": 0,
                   "max_output_tokens": 100, "parallel_tool_calls": False,
                   "tools": [openai.pydantic_responses_function_tool(GetWeather)],
                   "tool_choice": "required"}
        (item,) = self.client.responses.parse(**options).output
        self.assertIsInstance(item.parsed_arguments, GetWeather)
        with self.client.responses.stream(**options) as stream:
            snapshots = [event.snapshot for event in stream
                         if event.type == "response.function_call_arguments.delta"]
            (final,) = stream.get_final_response().output
        self.assertEqual(snapshots[-1], item.arguments)
        self.assertEqual(final.parsed_arguments, item.parsed_arguments)

    def test_a_result_is_answered(self):
        first = self.call(tool_choice="required")
        results = [{"type": "function_call_output", "call_id": item.call_id,
                    "output": [{"type": "input_text", "text": "3 degrees"}]}
                   for item in first.output]
        turn = [{"role": "user", "content": self.QUESTION}, *first.output, *results]
        answer = self.call(turn, tool_choice="none", max_output_tokens=24)
        self.assertTrue(answer.output_text)
        dumped = [turn[0], *(item.model_dump() for item in first.output), *results]
        self.assertEqual(self.call(dumped, tool_choice="none", max_output_tokens=24).output_text,
                         answer.output_text)
        self.assertGreater(answer.usage.input_tokens,
                           self.call(tool_choice="none").usage.input_tokens)
        thought = {"type": "reasoning", "id": "rs_1", "summary": [],
                   "content": [{"type": "reasoning_text", "text": "It is cold."}]}
        self.assertTrue(self.call([turn[0], thought, *turn[1:]], tool_choice="none").output_text)

    def test_formats(self):
        schema = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
                  "properties": {"name": {"enum": ["Ada", "Bob"]},
                                 "age": {"type": "integer", "minimum": 1, "maximum": 99}}}
        text = {"format": {"type": "json_schema", "name": "person", "schema": schema,
                           "strict": True}}
        answer = self.create("Invent a person.", text=text, max_output_tokens=100)
        jsonschema.validate(json.loads(answer.output_text), schema)
        self.assertEqual(answer.text.format.schema_, schema)
        loose = self.create("A person as JSON.", text={"format": {"type": "json_object"}},
                            max_output_tokens=200)
        self.assertTrue(loose.output_text.startswith("{"))
        parsed = self.client.responses.parse(model=self.server.name, input=self.QUESTION,
                                             temperature=0, text_format=Weather)
        self.assertIsInstance(parsed.output_parsed, Weather)

    def test_what_is_wrong_is_named(self):
        def refused(param, **options):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.call(**options)
            self.assertEqual(caught.exception.param, param)
        refused("tools[0].type", tools=[{"type": "web_search"}])
        refused("tools[0].parameters", tools=[{"type": "function", "name": "f",
                                               "parameters": {"type": "objekt"}}])
        refused("tool_choice", tools=[], tool_choice="required")
        refused("tool_choice.name", tool_choice={"type": "function", "name": "other"})
        refused("max_tool_calls", max_tool_calls=1)
        refused("reasoning.effort", reasoning={"effort": "high"})
        refused("text.format", text={"format": {"type": "json_object"}})
        refused("input[0].call_id", content=[{"type": "function_call_output", "output": "1"}])


class ThoughtsTest(ResponsesCase):
    """A model with random weights, and a template that begins a thought: it never ends one."""

    TEMPLATE = ("{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>"
                "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
                "assistant: {% if enable_thinking %}<think>\n{% endif %}")

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.MODEL = harness.make_model(Path(folder.name, "thinker"), "--preset", "tiny",
                                       "--format", "safetensors", "--type", "F32")
        Path(cls.MODEL, "chat_template.jinja").write_text(cls.TEMPLATE, encoding="utf-8")
        super().setUpClass()

    def test_thoughts_are_items(self):
        options = {"reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 12}
        answer = self.create("hi", **options)
        (item,) = answer.output
        self.assertEqual((item.type, item.status, item.summary), ("reasoning", "incomplete", []))
        self.assertEqual(answer.reasoning.effort, "low")
        self.assertEqual(answer.usage.output_tokens_details.reasoning_tokens, 12)
        events = self.stream("hi", **options)
        names = [event.type.removeprefix("response.") for event in events]
        self.assertEqual([name for name in names if name != "reasoning_text.delta"],
                         ["created", "in_progress", "output_item.added", "content_part.added",
                          "reasoning_text.done", "content_part.done", "output_item.done",
                          "incomplete"])
        thought = "".join(event.delta for event in events
                          if event.type == "response.reasoning_text.delta")
        self.assertEqual([part.text for part in item.content], [thought])
        # It goes back to the template: the next prompt has it.
        again = [{"role": "user", "content": "hi"}, item, {"role": "user", "content": "and?"}]
        self.assertGreater(self.create(again).usage.input_tokens,
                           self.create([again[0], again[2]]).usage.input_tokens + 5)


if __name__ == "__main__":
    unittest.main()
