"""What a request is answered depends on nothing else that runs, on any number of nodes."""

import json
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import harness
import serving

OTHERS = 16
NOTES = ("- The ferry leaves at nine in the morning and comes back at six in the evening.\n"
         "- Tickets are sold at the pier; children under seven travel free of charge.\n")
# Of every kind: what repeats its prompt, so that tokens are drafted, and what does not; greedy and
# sampled; logits as summaries and in full.
ASKED = [
    {"prompt": f"Repeat these notes word for word:\n{NOTES}", "temperature": 0},
    {"prompt": f"Say twice:\n{NOTES}", "temperature": 0.7, "seed": 4},
    {"prompt": "Tell a story about a lighthouse.", "temperature": 1, "seed": 7, "top_p": 0.9},
    {"prompt": "Name ten animals, and then name them again.", "temperature": 0.8, "seed": 9,
     "frequency_penalty": 0.4},
    {"prompt": "Why is the sky blue?", "temperature": 0.9, "seed": 11, "top_k": 40, "logprobs": True,
     "top_logprobs": 3},
]


def ask(server, prompt, **options):
    """The text, and the log-probabilities where they are wanted."""
    body = {"model": server.name, "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 70, **options}
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=harness.TIMEOUT_S) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["message"]["content"], choice.get("logprobs")


def other(i):
    words = " ".join(("sea", "light", "storm", "rock")[(i + n * n) % 4] for n in range(5 + 11 * i))
    return {"prompt": f"Explain: {words}", "temperature": i % 3 / 2, "seed": i, "max_tokens": 40 + i}


class BatchTest(harness.Case):
    def answers_alone(self, *arguments):
        with serving.Server("--ctx", "1024", *arguments) as server:
            server.wait_until_ready()
            return [ask(server, **asked) for asked in ASKED]

    def answers_among_others(self, *arguments):
        # Less cache than all of them want: some step back for others.
        with serving.Server("--ctx", "1024", "--cache", "1536", *arguments) as server:
            server.wait_until_ready()
            with ThreadPoolExecutor(OTHERS + len(ASKED)) as threads:
                others = [threads.submit(ask, server, **other(i)) for i in range(OTHERS)]
                asked = [threads.submit(ask, server, **asked) for asked in ASKED]
                answers = [one.result() for one in asked]
                for one in others:
                    one.result()
            return answers, server.metric("vllm:spec_decode_num_accepted_tokens_total")

    def test_an_answer_is_the_same_alone_and_among_others(self):
        for nodes in (1, 2, 3):
            with self.subTest(nodes=nodes):
                alone = self.answers_alone("--nodes", nodes, "--speculation", "off")
                among, drafted = self.answers_among_others("--nodes", nodes, "--speculation", "off")
                self.assertEqual(among, alone)
                self.assertEqual(drafted, 0)
                among, _ = self.answers_among_others("--nodes", nodes)
                self.assertEqual(among, alone)
                self.assertEqual(self.answers_alone("--nodes", nodes), alone)


if __name__ == "__main__":
    unittest.main()
