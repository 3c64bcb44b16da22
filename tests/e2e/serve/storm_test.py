"""Clients that behave badly at random: `shoal serve` answers at the end as at the start.

SHOAL_STORM_SECONDS says for how long (20), SHOAL_STORM_SEED repeats a storm's choices. A program
built with sanitizers gives memory back late: SHOAL_STORM_KEPT_MB is for it.
"""

import json
import os
import random
import re
import socket
import struct
import threading
import time
import unittest
from pathlib import Path

import harness
import serving

SECONDS = float(os.environ.get("SHOAL_STORM_SECONDS", "20"))
SEED = int(os.environ.get("SHOAL_STORM_SEED", "1"))
CLIENTS = 12
WARM_UPS_MAX = 12
# What the server may keep beside what it had after its first answers: allocators' slack.
KEPT_BYTES_MAX = int(os.environ.get("SHOAL_STORM_KEPT_MB", "96")) * 2**20


def request(path, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}",
             *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Client:
    """One bad client: each act opens a connection, does something to it, and leaves."""

    def __init__(self, server, seed):
        self.address = server.url.removeprefix("http://").split(":")
        self.name = server.name
        self.random = random.Random(seed)
        self.acts = 0

    def connect(self):
        return socket.create_connection((self.address[0], int(self.address[1])), timeout=60)

    def chat(self, **options):
        words = " ".join(self.random.choice(("sea", "light", "storm", "rock"))
                         for _ in range(self.random.randint(1, 120)))
        return request("/v1/chat/completions", {
            "model": self.name, "messages": [{"role": "user", "content": words}],
            "max_tokens": self.random.randint(1, 40), **options})

    def whole(self):
        with self.connect() as link:
            link.sendall(self.chat(temperature=self.random.choice((0, 1))))
            if not link.recv(65536).startswith(b"HTTP/1.1 200"):
                raise AssertionError("a good request was refused")

    def leave_a_stream(self):
        with self.connect() as link:
            link.sendall(self.chat(stream=True, n=self.random.randint(1, 3), max_tokens=2000))
            for _ in range(self.random.randint(0, 5)):
                link.recv(200)
            if self.random.random() < 0.5:  # reset instead of an orderly end
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def leave_before_the_answer(self):
        with self.connect() as link:
            link.sendall(self.chat(max_tokens=2000))
            time.sleep(self.random.random() * 0.3)

    def read_slowly(self):
        with self.connect() as link:
            link.sendall(self.chat(stream=True, max_tokens=200))
            for _ in range(20):
                link.recv(3)
                time.sleep(0.02)

    def send_garbage(self):
        with self.connect() as link:
            garbage = self.random.randbytes(self.random.randint(1, 3000))
            link.sendall(self.random.choice((
                garbage, request("/v1/chat/completions", garbage),
                request("/v1/completions", b"[" * 5000), request("/tokenize", {"prompt": 5}),
                b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n\r\n",
                request("/v1/chat/completions", {"model": self.name, "messages": []}))))
            link.shutdown(socket.SHUT_WR)
            while link.recv(65536):
                pass

    def send_half(self):
        with self.connect() as link:
            whole = self.chat()
            link.sendall(whole[:self.random.randint(0, len(whole) - 1)])
            time.sleep(self.random.random() * 0.2)

    def pipeline(self):
        with self.connect() as link:
            health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
            link.sendall(health * 3 + self.chat(stream=True) + health)
            link.recv(100)

    def run_until(self, deadline, failures):
        acts = (self.whole, self.leave_a_stream, self.leave_before_the_answer, self.read_slowly,
                self.send_garbage, self.send_half, self.pipeline)
        while time.monotonic() < deadline:
            try:
                self.random.choice(acts)()
            except ConnectionError:
                pass  # the server may end a bad connection
            except Exception as error:  # noqa: BLE001  what a thread raises is told by the test
                failures.append(repr(error))
            self.acts += 1


def resident_bytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class StormTest(harness.Case):
    def ask(self, server):
        with socket.create_connection(server.url.removeprefix("http://").split(":"),
                                      timeout=120) as link:
            link.sendall(request("/v1/chat/completions", {
                "model": server.name, "temperature": 0, "max_tokens": 20,
                "messages": [{"role": "user", "content": "Name the capital of France."}]},
                Connection="close"))
            answer = b"".join(iter(lambda: link.recv(65536), b""))
        return json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]

    def storm(self, server, seconds, seed):
        failures = []
        clients = [Client(server, seed * 1000 + i) for i in range(CLIENTS)]
        deadline = time.monotonic() + seconds
        threads = [threading.Thread(target=client.run_until, args=(deadline, failures))
                   for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(sum(client.acts for client in clients), CLIENTS)
        self.wait_until(lambda: server.metric("vllm:num_requests_running") == 0
                        and server.metric("vllm:num_requests_waiting") == 0,
                        "cancelled requests to end", timeout=60)

    def cache_share(self, server):
        return (server.metric("vllm:kv_cache_usage_perc")
                + server.metric("shoal:prefix_cache_usage_perc"))

    def storm_until_all_is_in_use(self, server):
        """The system gives memory when it is first written: until then it seems to grow."""
        for attempt in range(WARM_UPS_MAX):
            self.storm(server, min(5, SECONDS), SEED + attempt)
            if self.cache_share(server) > 0.9:
                return
        self.fail(f"only {self.cache_share(server):.0%} of the KV cache was ever used")

    def test_the_server_outlives_a_storm(self):
        with serving.Server("--nodes", "2", "--ctx", "2048", "--cache", "4096") as server:
            server.wait_until_ready()
            before = self.ask(server)
            self.storm_until_all_is_in_use(server)
            kept = resident_bytes(server.process.pid)
            self.storm(server, SECONDS, SEED + WARM_UPS_MAX)
            self.assertEqual(self.ask(server), before)
            self.assertLess(resident_bytes(server.process.pid), kept + KEPT_BYTES_MAX)
            self.assertEqual(server.get("/health")[0], 200)
            server.end()
            self.assertIsNone(re.search(r"CHECK|ERROR|WARNING", server.errors), server.errors)


if __name__ == "__main__":
    unittest.main()
