"""`shoal serve` on two nodes, as OpenAI's own Python client uses it."""

import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
import serving

import openai  # from serving.packages()

ENDED = 128 + signal.SIGTERM  # the exit code of whatever a signal ended in order
QUESTION = [{"role": "user", "content": "Name the capital of France."}]
STORY = [{"role": "user", "content": "Write a long story about a lighthouse."}]


class OpenAICase(serving.ServedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = serving.openai_client(cls.server)

    def chat(self, messages=None, **options):
        options = {"model": self.server.name, "temperature": 0, "max_tokens": 24, **options}
        return self.client.chat.completions.create(messages=messages or QUESTION, **options)

    def text(self, messages=None, **options):
        return self.chat(messages, **options).choices[0].message.content

    def streamed(self, messages=None, **options):
        """The text of each choice, joined from its pieces."""
        texts = {}
        for chunk in self.chat(messages, stream=True, **options):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        return [texts[index] for index in sorted(texts)]


class ChatTest(OpenAICase):
    def test_c55_models_are_listed_and_retrieved(self):
        (model,) = self.client.models.list().data
        self.assertEqual(model.id, self.server.name)
        self.assertEqual(self.client.models.retrieve(model.id).object, "model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("org/other")

    def test_an_answer_is_that_of_shoal_run(self):
        answer = self.chat()
        run = self.succeed_json("run", harness.demo_model(), QUESTION[0]["content"], "--nodes", "2",
                                "--temperature", "0", "-n", "24")
        self.assertEqual(answer.choices[0].message.content, run["text"])
        self.assertEqual(answer.usage.prompt_tokens, len(run["prompt_ids"]))
        self.assertEqual(answer.usage.completion_tokens, len(run["ids"]))
        self.assertEqual(answer.choices[0].message.role, "assistant")

    def test_a_stream_has_the_same_text_and_usage(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        (reason,) = [choice.finish_reason for chunk in chunks for choice in chunk.choices
                     if choice.finish_reason]
        self.assertEqual(reason, whole.choices[0].finish_reason)

    def test_the_limit_ends_with_length_and_the_model_with_stop(self):
        self.assertEqual(self.chat(STORY, max_tokens=3).choices[0].finish_reason, "length")
        self.assertEqual(self.chat(STORY, max_tokens=3).usage.completion_tokens, 3)
        self.assertEqual(self.chat(max_tokens=200).choices[0].finish_reason, "stop")

    def test_c41_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=5).choices[0]
        tokens = answer.logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(),
                         answer.message.content)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 5)
            self.assertEqual(token.top_logprobs[0].token, token.token)  # greedy
            values = [other.logprob for other in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))

    def test_c40_c41_characters_of_several_tokens(self):
        """Tokens that are pieces of characters, forced by a bias: streamed and whole agree."""
        _, body = self.post("/tokenize", {"prompt": "漢👍é", "add_special_tokens": False})
        bias = {str(token): 100 for token in json.loads(body)["tokens"]}
        for seed in range(3):
            options = {"logit_bias": bias, "temperature": 1, "seed": seed, "max_tokens": 30}
            whole = self.chat(**options, logprobs=True).choices[0]
            self.assertEqual(self.streamed(**options), [whole.message.content])
            raw = b"".join(bytes(token.bytes) for token in whole.logprobs.content)
            self.assertEqual(raw.decode("utf-8", "replace"), whole.message.content)

    def test_c43_stop_strings(self):
        text = self.text(STORY, max_tokens=60)
        self.assertEqual(self.text(STORY, max_tokens=60, stop=[text[-3:] + "QZX"]), text)
        self.assertEqual(self.text(STORY, max_tokens=60, stop="x" * 500), text)
        word = text.split()[5]
        cut = self.chat(STORY, max_tokens=60, stop=[word, "never"])
        self.assertEqual(cut.choices[0].message.content, text[:text.index(word)])
        self.assertEqual(cut.choices[0].finish_reason, "stop")
        self.assertEqual(self.streamed(STORY, max_tokens=60, stop=[word]), [text[:text.index(word)]])

    def test_c51_choices(self):
        options = {"n": 3, "temperature": 1, "seed": 1, "max_tokens": 20}
        answer = self.chat(STORY, **options)
        texts = [choice.message.content for choice in answer.choices]
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertGreater(len(set(texts)), 1)
        self.assertEqual(answer.usage.prompt_tokens, self.chat(STORY).usage.prompt_tokens)
        again = self.chat(STORY, **options)
        self.assertEqual([choice.message.content for choice in again.choices], texts)
        self.assertEqual(self.streamed(STORY, **options), texts)
        self.refused(openai.BadRequestError, "n", n=0)
        self.refused(openai.BadRequestError, "n", n=1000)

    def test_c47_messages_and_roles(self):
        self.refused(openai.BadRequestError, "messages", messages=[], model=self.server.name)
        self.assertTrue(self.chat([{"role": "user", "content": ""}]).choices)
        self.refused(openai.BadRequestError, "messages[0].content",
                     messages=[{"role": "user", "content": None}])
        self.refused(openai.BadRequestError, "messages[0].role",
                     messages=[{"role": "alien", "content": "hi"}])

    def refused(self, error, param=None, **options):
        messages = options.pop("messages", QUESTION)
        with self.assertRaises(error) as caught:
            self.client.chat.completions.create(
                messages=messages, **{"model": self.server.name, "max_tokens": 4, **options})
        if param is not None:
            self.assertEqual(caught.exception.param, param)
        return caught.exception

    def test_errors_name_what_is_wrong(self):
        self.refused(openai.NotFoundError, "model", model="gpt-4o")
        self.refused(openai.BadRequestError, "temperature", temperature=3)
        self.refused(openai.BadRequestError, "response_format.type",
                     response_format={"type": "yaml"})
        self.refused(openai.BadRequestError, "tool_choice", tool_choice="required")
        self.refused(openai.BadRequestError, "top_logprobs", top_logprobs=3)
        self.refused(openai.BadRequestError, "bogus", extra_body={"bogus": 1})
        too_long = self.refused(openai.BadRequestError, "messages",
                                messages=[{"role": "user", "content": "word " * 10_000}])
        self.assertEqual(too_long.code, "context_length_exceeded")

    def test_what_local_clients_send_is_honoured(self):
        best = self.text(temperature=0)
        self.assertEqual(self.text(temperature=1, extra_body={"top_k": 1}), best)
        self.assertEqual(self.text(temperature=1, extra_body={"min_p": 1.0}), best)
        self.assertNotEqual(self.text(STORY, max_tokens=60),
                            self.text(STORY, max_tokens=60, extra_body={"repetition_penalty": 2.0}))

    def test_a_client_that_goes_ends_its_request(self):
        before = self.server.metric("vllm:generation_tokens_total")
        stream = self.chat(STORY, stream=True, max_tokens=5000, extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(3), stream):
            pass
        stream.close()
        self.wait_until(lambda: self.server.metric("vllm:num_requests_running") == 0,
                        "the request to end")
        self.assertLess(self.server.metric("vllm:generation_tokens_total") - before, 4000)

    def test_answers_do_not_depend_on_their_neighbours(self):
        alone = self.text(STORY, temperature=1, seed=5, max_tokens=30)
        with ThreadPoolExecutor(8) as pool:
            others = [pool.submit(self.text, STORY, temperature=1, seed=seed, max_tokens=30)
                      for seed in range(8)]
            self.assertEqual(others[5].result(), alone)
            self.assertGreater(len({other.result() for other in others}), 1)

    def test_a_follow_up_turn_takes_the_conversation_from_the_cache(self):
        first = self.text(STORY, max_tokens=40)
        turn = [*STORY, {"role": "assistant", "content": first},
                {"role": "user", "content": "And then?"}]
        self.assertGreater(self.chat(turn).usage.prompt_tokens_details.cached_tokens, 0)

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_tokens_go_both_ways(self):
        _, body = self.post("/tokenize", {"prompt": "Hello, wörld"})
        tokens = json.loads(body)["tokens"]
        _, body = self.post("/detokenize", {"tokens": tokens})
        self.assertIn("Hello, wörld", json.loads(body)["prompt"])

    def test_garbage_is_refused_and_changes_nothing(self):
        for garbage in (b"", b"{", b"[]", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000):
            status, body = self.post("/v1/chat/completions", garbage)
            self.assertEqual(status, 400)
            self.assertIn("message", json.loads(body)["error"])
        self.assertTrue(self.text())

    def test_c54_curl_and_a_large_body(self):
        padding = json.dumps({"model": self.server.name, "max_tokens": 2, "messages": QUESTION,
                              "metadata": {"a": "x" * 2_000_000}})
        curl = subprocess.run(
            ["curl", "-s", "-m", "30", "-H", "Expect: 100-continue", "-H", "Transfer-Encoding: chunked",
             "-d", "@-", f"{self.server.url}/v1/chat/completions"],
            input=padding, capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(curl.stdout)["object"], "chat.completion")

    def test_c53_health_answers_at_once_under_load(self):
        with ThreadPoolExecutor(6) as pool:
            busy = [pool.submit(self.text, [{"role": "user", "content": f"{i} " + "word " * 600}],
                                max_tokens=4) for i in range(6)]
            answered = 0
            while not all(one.done() for one in busy):
                self.assertEqual(self.server.get("/health")[0], 200)
                answered += 1
                time.sleep(0.02)
            for one in busy:
                one.result()  # raises what went wrong
        self.assertGreater(answered, 2)  # each of them while the model was at work


class CompletionsTest(OpenAICase):
    def complete(self, prompt, **options):
        return self.client.completions.create(
            model=self.server.name, prompt=prompt, **{"temperature": 0, "max_tokens": 8, **options})

    def test_c47_prompts_in_all_their_forms(self):
        two = self.complete(["Once upon a time", "The capital of France is"])
        self.assertEqual([choice.index for choice in two.choices], [0, 1])
        single = self.complete("The capital of France is").choices[0].text
        self.assertEqual(two.choices[1].text, single)
        ids = self.succeed_json("tokenize", harness.demo_model(), "The capital of France is")["ids"]
        self.assertEqual(self.complete(ids).choices[0].text, single)
        for bad in ([], [10**6], [[]], [-1]):
            with self.assertRaises(openai.BadRequestError):
                self.complete(bad)

    def test_echo_logprobs_and_the_default_limit(self):
        self.assertTrue(self.complete("Once upon", echo=True).choices[0].text
                        .startswith("Once upon"))
        choice = self.complete("Once upon", logprobs=2).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        self.assertEqual(choice.logprobs.text_offset[0], 0)
        self.assertEqual(len(choice.logprobs.top_logprobs[0]), 2)
        unlimited = self.client.completions.create(model=self.server.name, prompt="Once upon",
                                                   temperature=0)
        self.assertLessEqual(unlimited.usage.completion_tokens, 16)

    def test_a_stream_has_the_same_text(self):
        whole = self.complete("Once upon a time").choices[0].text
        pieces = self.complete("Once upon a time", stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), whole)


class LinesToTryTest(OpenAICase):
    ARGUMENTS = ("--name", "my-model")

    def test_the_lines_that_are_printed_work(self):
        _, curl, python, chat_client = self.lines
        environment = {**os.environ, "PYTHONPATH": serving.packages()}
        for line in (curl, python):
            result = subprocess.run(["bash", "-c", line], capture_output=True, text=True,
                                    env=environment, timeout=120)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(result.stdout.strip())
        self.assertIn(f"base URL {self.server.url}/v1", chat_client)
        self.wait_until(lambda: "shoal: ready in" in self.server.errors, "the note that it is ready")
        self.assertIn(f"loading {harness.demo_model()}", self.server.errors)
        self.assertIn("model my-model", chat_client)


class LifeTest(harness.Case):
    def test_c53_health_while_it_loads_and_after(self):
        with serving.Server() as server:
            server.wait_until_listening()
            seen = set()
            while (status := server.get("/health")[0]) != 200:
                seen.add(status)
            self.assertLessEqual(seen, {503})
            server.wait_until_ready()
            self.assertEqual(server.get("/ready")[0], 200)

    def test_sigterm_lets_a_stream_end_and_takes_no_new_request(self):
        with serving.Server("--nodes", "2") as server:
            server.wait_until_ready()
            stream = serving.openai_client(server).chat.completions.create(
                model=server.name, messages=STORY, stream=True, max_tokens=60,
                extra_body={"ignore_eos": True})
            next(stream)
            server.terminate()
            self.assertEqual([chunk.choices[0].finish_reason for chunk in stream][-1], "length")
            self.assertEqual(server.end(), ENDED)
            with self.assertRaises(OSError):
                urllib.request.urlopen(server.url + "/health", timeout=5)

    def test_an_answer_that_outlasts_the_grace_is_cut_off(self):
        with serving.Server("--grace", "0") as server:
            server.wait_until_ready()
            stream = serving.openai_client(server).chat.completions.create(
                model=server.name, messages=STORY, stream=True, max_tokens=5000,
                extra_body={"ignore_eos": True})
            next(stream)
            self.assertEqual(server.end(), ENDED)
            self.assertIn("cut off", server.errors)
            stream.close()

    def test_a_lost_node_is_told(self):
        with serving.Server("--nodes", "2") as server:
            server.wait_until_ready()
            (node,) = harness.children_of(server.process.pid)
            os.kill(node, signal.SIGKILL)
            self.wait_until(lambda: server.get("/health")[0] == 503, "health to say so")
            self.assertIn("rank 1", server.get("/health")[1])
            with self.assertRaises(openai.InternalServerError) as caught:
                serving.openai_client(server).chat.completions.create(model=server.name, messages=QUESTION)
            self.assertEqual(caught.exception.status_code, 503)
            self.assertEqual(server.end(), ENDED)
            self.assertIn("the model has failed", server.errors)

    def test_keys_are_asked_for(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# keys\nfirst-good-key\nsecond-good-key\n")
            file.flush()
            with serving.Server("--api-key-file", file.name, "--host", "0.0.0.0") as server:
                lines = server.wait_until_ready()
                self.assertIn("$SHOAL_API_KEY", lines[1])
                self.assertEqual(server.get("/health")[0], 200)
                self.assertEqual(server.get("/v1/models")[0], 401)
                with self.assertRaises(openai.AuthenticationError):
                    serving.openai_client(server, "bad-key").models.list()
                self.assertTrue(serving.openai_client(server, "second-good-key").models.list().data)

    def test_no_prompt_and_no_answer_is_logged(self):
        os.environ["SHOAL_LOG"] = "trace"
        try:
            with serving.Server("--nodes", "2") as server:
                server.wait_until_ready()
                answer = serving.openai_client(server).chat.completions.create(
                    model=server.name, max_tokens=12, temperature=0,
                    messages=[{"role": "user", "content": "Say xylophone-zebra, please."}])
                server.get("/secret-path?secret-query")
                server.end()
                self.assertIn("/v1/chat/completions 200", server.errors)
                for secret in ("xylophone", "secret", answer.choices[0].message.content[:12]):
                    self.assertNotIn(secret, server.errors)
        finally:
            del os.environ["SHOAL_LOG"]


class EncryptedTest(harness.Case):
    def test_connections_are_encrypted_with_the_given_certificate(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                            "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                            key, "-out", certificate], check=True, capture_output=True)
            self.fail_with("serve", harness.demo_model(), "--port", "0", "--tls-cert", certificate,
                           code=2, says="--tls-key")
            self.fail_with("serve", harness.demo_model(), "--port", "0", "-q", "--tls-cert", key,
                           "--tls-key", key, says=[str(key), "PEM"])
            with serving.Server("--tls-cert", certificate, "--tls-key", key) as server:
                server.wait_until_ready()
                self.assertTrue(server.url.startswith("https://"))
                context = ssl.create_default_context(cafile=certificate)
                self.check_one_connection(server, context)
                self.check_large_body(server, context)

    def check_large_body(self, server, context):
        """A client that sends all of a body that is too large sees why it is refused."""
        port = int(server.url.rpartition(":")[2])
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        link.request("POST", "/v1/messages", b"x" * 30_000_000)
        answer = link.getresponse()
        self.assertEqual(answer.status, 413)
        self.assertEqual(json.loads(answer.read())["error"]["type"], "request_too_large")
        link.close()

    def check_one_connection(self, server, context):
        """A whole answer, a stream and a large body, all on one connection."""
        port = int(server.url.rpartition(":")[2])
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        body = {"model": server.name, "messages": QUESTION, "max_tokens": 5}
        for extra in ({}, {"stream": True}, {"metadata": {"a": "x" * 1_000_000}}, {"stream": True}):
            link.request("POST", "/v1/chat/completions", json.dumps({**body, **extra}))
            socket_before = link.sock
            answer = link.getresponse()
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.read())
            self.assertIs(link.sock, socket_before)
        link.close()
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1 200", plain.recv(1000))


class ExamplesTest(harness.Case):
    def test_the_examples_of_the_help_start(self):
        _, _, examples = self.succeed("serve", "--help").partition("Examples:\n")
        lines = [shlex.split(line) for line in examples.splitlines() if line.strip()]
        self.assertGreater(len(lines), 2)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "model.gguf").symlink_to(harness.demo_model())
            (Path(folder) / "keys.txt").write_text("a-key-for-the-example")
            for _, command, model, *arguments in lines:
                with self.subTest(arguments=arguments):
                    self.assertEqual(command, "serve")
                    if "--port" in arguments:  # the tests' server takes a free one
                        at = arguments.index("--port")
                        del arguments[at:at + 2]
                    with serving.Server(*arguments, model=model, folder=folder) as server:
                        server.wait_until_ready()
                        self.assertEqual(server.get("/health")[0], 200)


class RefusalTest(harness.Case):
    def test_a_busy_port_is_one_sentence(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.fail_with("serve", harness.demo_model(), "--port", port, "--quiet",
                           says=[str(port), "another --port"])

    def test_too_little_memory_is_one_sentence(self):
        # A process that may map half a gigabyte, and a cache that needs more.
        self.fail_with("serve", harness.demo_model(), "--port", "0", "-q", "--kv", "f32",
                       "--ctx", 8192, address_space=450 << 20,
                       says=["of weights", "available here", "a smaller --ctx"])
        self.fail_with("serve", harness.demo_model(), "--port", "0", "-q", "--cache", 1 << 24,
                       address_space=64 << 30, says=["positions of KV cache", "a smaller --cache"])

    def test_a_missing_model_and_key_are_one_sentence(self):
        self.fail_with("serve", "no-such-name", "--port", "0", "-q", says=["no-such-name", "smollm2"])
        self.fail_with("serve", harness.demo_model(), "--host", "0.0.0.0", "-q",
                       says=["--api-key-file", "127.0.0.1"])
        self.fail_with("serve", harness.demo_model(), "--host", "no such host", "-q",
                       says="no such host")
        with tempfile.NamedTemporaryFile() as empty:
            self.fail_with("serve", harness.demo_model(), "--api-key-file", empty.name, "-q",
                           says=[empty.name, "openssl rand"])


if __name__ == "__main__":
    unittest.main()
