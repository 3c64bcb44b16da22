"""Tools on `shoal serve`, as OpenAI's, Anthropic's and Ollama's own Python clients use them.

The demo model's template knows nothing of tools, so the server tells it of them; forced calls are
well-formed by a grammar, whatever a model of this size would like to say."""

import json
import unittest

import serving

import anthropic  # from serving.packages()
import ollama
import openai

QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
WEATHER = {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
           "properties": {"city": {"enum": ["Oslo", "Rome"]}, "unit": {"enum": ["C", "F"]},
                          "note": {"type": "string", "maxLength": 20}}}
TIME = {"type": "object", "required": ["zone"], "additionalProperties": False,
        "properties": {"zone": {"enum": ["UTC", "local"]}}}
SCHEMAS = {"get_weather": WEATHER, "get_time": TIME}


class ToolCase(serving.ServedCase):
    def check_arguments(self, name, arguments):
        schema = SCHEMAS[name]
        self.assertIsInstance(arguments, dict)
        self.assertLessEqual(set(schema["required"]), set(arguments))
        self.assertLessEqual(set(arguments), set(schema["properties"]))
        for key, value in arguments.items():
            choices = schema["properties"][key].get("enum")
            if choices:
                self.assertIn(value, choices)
            else:
                self.assertLessEqual(len(value), 20)


class OpenAITest(ToolCase):
    TOOLS = [{"type": "function", "function": {"name": name, "description": f"{name} now",
                                               "parameters": schema}}
             for name, schema in SCHEMAS.items()]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server)

    def chat(self, messages=None, **options):
        options = {"model": self.server.name, "temperature": 0, "max_tokens": 300,
                   "tools": self.TOOLS, **options}
        return self.client.chat.completions.create(messages=messages or QUESTION, **options)

    def check_calls(self, calls):
        self.assertEqual(len({call.id for call in calls}), len(calls))
        for call in calls:
            self.assertEqual(call.type, "function")
            self.check_arguments(call.function.name, json.loads(call.function.arguments))

    def test_c50_required_calls(self):
        (choice,) = self.chat(tool_choice="required").choices
        self.assertTrue(choice.message.tool_calls)
        self.check_calls(choice.message.tool_calls)
        self.assertFalse(choice.message.content)
        self.assertEqual(choice.finish_reason, "tool_calls")

    def test_c50_one_call_where_several_are_not_wanted(self):
        for seed in range(4):
            (choice,) = self.chat(tool_choice="required", parallel_tool_calls=False, temperature=1,
                                  seed=seed).choices
            self.check_calls(choice.message.tool_calls)
            self.assertEqual(len(choice.message.tool_calls), 1)

    def test_c50_a_named_function(self):
        for name in SCHEMAS:
            choice = {"type": "function", "function": {"name": name}}
            (call,) = self.chat(tool_choice=choice).choices[0].message.tool_calls
            self.assertEqual(call.function.name, name)
            self.check_calls([call])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tool_choice={"type": "function", "function": {"name": "other"}})
        self.assertEqual(caught.exception.param, "tool_choice.function.name")

    def test_c50_a_stream_has_the_same_calls(self):
        whole = self.chat(tool_choice="required").choices[0]
        calls, reasons, content = [], [], ""
        for chunk in self.chat(tool_choice="required", stream=True):
            choice = chunk.choices[0]
            reasons += [choice.finish_reason] if choice.finish_reason else []
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                if call.index == len(calls):
                    self.assertTrue(call.id and call.function.name)
                    self.assertEqual((call.type, call.function.arguments), ("function", ""))
                    calls.append([call.function.name, ""])
                else:
                    self.assertIsNone(call.id)
                    calls[call.index][1] += call.function.arguments
        self.assertEqual(calls, [[call.function.name, call.function.arguments]
                                 for call in whole.message.tool_calls])
        self.assertEqual(content, "")
        self.assertEqual(reasons, ["tool_calls"])

    def test_c50_none_and_auto(self):
        (none,) = self.chat(tool_choice="none", max_tokens=24).choices
        self.assertFalse(none.message.tool_calls)
        plain = self.chat(tools=openai.NOT_GIVEN, max_tokens=24).choices[0].message.content
        self.assertEqual(none.message.content, plain)
        (auto,) = self.chat(max_tokens=200).choices
        self.check_calls(auto.message.tool_calls or [])
        self.assertTrue(auto.message.tool_calls or auto.message.content)

    def test_c37_a_result_is_answered(self):
        first = self.chat(tool_choice="required", parallel_tool_calls=False).choices[0].message
        turn = [*QUESTION, first.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "3 degrees"}]
        answer = self.chat(turn, tool_choice="none", max_tokens=24)
        self.assertTrue(answer.choices[0].message.content)
        self.assertGreater(answer.usage.prompt_tokens,
                           self.chat(tool_choice="none", max_tokens=1).usage.prompt_tokens)

    def test_what_is_wrong_is_named(self):
        def refused(param, **options):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**options)
            self.assertEqual(caught.exception.param, param)
        function = {"name": "f", "parameters": {"type": "objekt"}}
        refused("tools[0].function.parameters", tools=[{"type": "function", "function": function}])
        refused("tools[0].function.name", tools=[{"type": "function", "function": {"name": "a b"}}])
        refused("tool_choice", tools=[], tool_choice="required")
        refused("reasoning_effort", reasoning_effort="high")


class AnthropicTest(ToolCase):
    TOOLS = [{"name": name, "description": f"{name} now", "input_schema": schema}
             for name, schema in SCHEMAS.items()]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0,
                                         timeout=120)

    def options(self, **options):
        return {"model": self.server.name, "max_tokens": 300, "messages": QUESTION,
                "tools": self.TOOLS, "extra_body": {"temperature": 0}, **options}

    def test_calls_are_blocks(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_time"}):
            answer = self.client.messages.create(**self.options(tool_choice=choice))
            self.assertEqual(answer.stop_reason, "tool_use")
            for block in answer.content:
                self.assertEqual(block.type, "tool_use")
                self.assertEqual(block.name, choice.get("name", block.name))
                self.check_arguments(block.name, block.input)

    def test_a_stream_has_the_same_blocks(self):
        options = self.options(tool_choice={"type": "any"})
        whole = self.client.messages.create(**options)
        with self.client.messages.stream(**options) as stream:
            final = stream.get_final_message()
        self.assertEqual([(block.name, block.input) for block in final.content],
                         [(block.name, block.input) for block in whole.content])
        self.assertEqual(final.stop_reason, "tool_use")

    def test_a_result_is_answered(self):
        choice = {"type": "any", "disable_parallel_tool_use": True}
        first = self.client.messages.create(**self.options(tool_choice=choice))
        (call,) = first.content
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "3 degrees"}
        turn = [*QUESTION, {"role": "assistant", "content": [call.model_dump(
                    include={"type", "id", "name", "input"})]},
                {"role": "user", "content": [result]}]
        answer = self.client.messages.create(
            **self.options(messages=turn, max_tokens=24, tool_choice={"type": "none"}))
        self.assertTrue(answer.content[0].text)

    def test_errors_are_told(self):
        for options in ({"tool_choice": {"type": "tool", "name": "other"}},
                        {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.client.messages.create(**self.options(**options))
            self.assertIn(next(iter(options)), str(caught.exception))


class OllamaTest(ToolCase):
    TOOLS = OpenAITest.TOOLS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = ollama.Client(host=cls.server.url, timeout=120)

    def chat(self, messages=None, **options):
        return self.client.chat(model=self.server.name, messages=messages or QUESTION,
                                options={"temperature": 0, "num_predict": 100}, **options)

    def test_tools_are_told(self):
        told = self.chat(tools=self.TOOLS)
        self.assertGreater(told.prompt_eval_count, self.chat().prompt_eval_count)
        for call in told.message.tool_calls or []:
            self.check_arguments(call.function.name, dict(call.function.arguments))
        pieces = list(self.chat(tools=self.TOOLS, stream=True))
        self.assertEqual("".join(piece.message.content or "" for piece in pieces),
                         told.message.content or "")

    def test_calls_and_results_of_the_conversation(self):
        call = {"function": {"name": "get_time", "arguments": {"zone": "UTC"}}}
        answer = self.chat([*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]},
                            {"role": "tool", "content": "12:00", "tool_name": "get_time"}])
        self.assertTrue(answer.message.content)

    def test_a_model_that_does_not_think_says_so(self):
        self.assertNotIn("thinking", self.client.show(self.server.name).capabilities)
        self.assertIn("tools", self.client.show(self.server.name).capabilities)
        with self.assertRaises(ollama.ResponseError) as caught:
            self.chat(think=True)
        self.assertEqual(caught.exception.status_code, 400)
        self.assertIn("think", caught.exception.error)


if __name__ == "__main__":
    unittest.main()
