"""The chat on a terminal: streaming, Ctrl-C, several lines, commands, history."""

import os
import signal
import stat
import tempfile
import unittest
from pathlib import Path

import harness

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


class ChatTest(harness.Case):
    def setUp(self):
        self.state = tempfile.TemporaryDirectory()
        self.addCleanup(self.state.cleanup)

    def chat(self, *options):
        terminal = harness.Terminal("run", harness.demo_model(), "--temperature", "0", *options,
                                    env={"XDG_STATE_HOME": self.state.name})
        self.addCleanup(terminal.__exit__)
        terminal.expect("/help for help")
        terminal.expect("> ", after=terminal.seen.index("/help for help"))
        return terminal

    def test_it_answers_and_leaves_with_ctrl_d(self):
        chat = self.chat("-n", "24")
        chat.send("Name the capital of France.\r")
        position = chat.expect("Paris")
        position = chat.expect("tok/s", after=position)
        chat.expect("> ", after=position)
        chat.send(CTRL_D)
        self.assertEqual(chat.wait(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        chat = self.chat("--nodes", "2", "--ignore-end")
        chat.send("Write a long story.\r")
        position = chat.expect("\n", after=len(chat.seen))
        chat.expect_more(40)
        chat.send(CTRL_C)
        position = chat.expect("(stopped)", timeout=20, after=position)
        position = chat.expect("> ", after=position)
        chat.send("/stats\r")
        position = chat.expect("node-1", after=position)
        chat.expect("> ", after=position)
        chat.send("/exit\r")
        self.assertEqual(chat.wait(), 0)

    def test_ctrl_c_twice_at_the_prompt_leaves(self):
        chat = self.chat()
        chat.send("half a question")
        chat.expect("half a question")
        chat.send(CTRL_C)
        position = chat.expect("Ctrl-C again")
        chat.expect("> ", after=position)
        chat.send(CTRL_C)
        self.assertEqual(chat.wait(), 0)

    def test_lines_are_joined_by_a_backslash_and_in_blocks(self):
        chat = self.chat("-n", "8")
        chat.send("What is the capital\\\r")
        position = chat.expect(". ", after=len(chat.seen))
        chat.send("of France?\r")
        position = chat.expect("tok/s", after=position)
        chat.expect("> ", after=position)
        chat.send('"""What is\r')
        position = chat.expect(". ", after=position)
        chat.send('the capital of Italy?"""\r')
        position = chat.expect("tok/s", after=position)
        chat.send("/exit\r")
        self.assertEqual(chat.wait(), 0)

    def test_commands_answer(self):
        chat = self.chat("-n", "8")
        position = len(chat.seen)
        for command, answer in (("/help", "/clear"), ("/system You are a pirate.", "system"),
                                ("/clear", "anew"), ("/stats", "no answer yet"),
                                ("/retry", "no answer yet"), ("/bogus", "/bogus")):
            chat.send(command + "\r")
            position = chat.expect(answer, after=position + len(command))
            position = chat.expect("> ", after=position)
        chat.send("/exit\r")
        self.assertEqual(chat.wait(), 0)

    def test_the_history_is_kept_for_its_owner_only(self):
        chat = self.chat("-n", "2")
        chat.send("a question to remember\r")
        chat.expect("tok/s")
        chat.send("/exit\r")
        self.assertEqual(chat.wait(), 0)
        path = Path(self.state.name) / "shoal/chat_history"
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertIn("remember", path.read_text())
        again = self.chat("-n", "2")
        position = len(again.seen)
        again.send(UP)
        position = again.expect("/exit", after=position)
        again.send(UP)
        position = again.expect("a question to remember", after=position)
        again.send(CTRL_C)
        position = again.expect("Ctrl-C again", after=position)
        again.expect("> ", after=position)
        again.send(CTRL_D)
        self.assertEqual(again.wait(), 0)

    def test_sigterm_ends_it_with_its_nodes(self):
        chat = self.chat("--nodes", "2")
        (node,) = harness.children_of(chat.pid)
        os.kill(chat.pid, signal.SIGTERM)
        self.assertEqual(chat.wait(), 128 + signal.SIGTERM)
        self.wait_until(lambda: not harness.is_alive(node), "the node to end")


class InterruptTest(harness.Case):
    def test_ctrl_c_in_a_single_answer_ends_in_order(self):
        terminal = harness.Terminal("run", harness.demo_model(), "Write a long story.",
                                    "--ignore-end", "--nodes", "2", "--quiet")
        with terminal:
            terminal.expect_more(40)
            terminal.send(CTRL_C)
            self.assertEqual(terminal.wait(), 130)

    def test_ctrl_c_while_it_loads_leaves_nothing(self):
        footprint = harness.Footprint()
        terminal = harness.Terminal("run", harness.demo_model(), "hi", "--nodes", "2",
                                    env=footprint.environment)
        with terminal:
            # Both processes are there, the model is not yet.
            self.wait_until(lambda: len(footprint.processes()) == 2, "the second node")
            footprint.look()
            terminal.send(CTRL_C)
            self.assertIn(terminal.wait(), (130, -signal.SIGINT), "it had loaded before")
            self.wait_until(lambda: not footprint.left(), "the nodes and what they held to go")


if __name__ == "__main__":
    unittest.main()
