"""The command line itself: help, version, completions, manual, and what it says of bad input."""

import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness

COMMANDS = [["run"], ["serve"], ["info"], ["doctor"], ["models"], ["pull"], ["plan"], ["bench"], ["bench", "model"],
            ["bench", "fabric"], ["bench", "machine"], ["trace"], ["eval"], ["tokenize"],
            ["completion"], ["man"]]
# They have no result to tell: a server, and files for other programs.
WITHOUT_JSON = [["serve"], ["completion"], ["man"]]


class HelpTest(harness.Case):
    def test_every_command_has_help_with_examples(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                text = self.succeed(*command, "--help")
                self.assertIn("Examples:", text)
                self.assertIn("shoal " + " ".join(command), text)

    def test_every_command_with_a_result_can_print_it_as_json(self):
        for command in COMMANDS:
            if command == ["bench"]:  # only a name for those below it
                continue
            with self.subTest(command=command):
                options = re.findall(r"(?<=\s|,)--?[a-z][a-z-]*", self.succeed(*command, "--help"))
                self.assertEqual("--json" in options, command not in WITHOUT_JSON)

    def test_the_help_lists_every_command(self):
        text = self.succeed("--help")
        for command in COMMANDS:
            self.assertIn(command[0], text)
        self.assertNotIn("  node", text)

    def test_no_command_shows_the_help(self):
        self.assertEqual(self.succeed(), self.succeed("--help"))

    def test_the_version_tells_commit_and_compiler(self):
        self.assertRegex(self.succeed("--version"), r"^shoal \d+\.\d+\.\d+ \(\S+, \w+, Clang .+\)")


class MadeFilesTest(harness.Case):
    """Files that the program makes of its own options are committed; they must not drift."""

    def check_file(self, path, *command):
        text = self.succeed(*command)
        if os.environ.get("SHOAL_UPDATE"):
            (harness.SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
            (harness.SOURCE / path).write_text(text, encoding="utf-8")
        self.assertEqual((harness.SOURCE / path).read_text(encoding="utf-8"), text,
                         f"make it anew: shoal {' '.join(command)} > {path}")
        return text

    def test_the_manual_has_every_option_of_every_command(self):
        manual = self.check_file("docs/man/shoal.1", "man").replace("\\-", "-")
        for command in COMMANDS:
            for option in re.findall(r"(?<=\s|,)--?[a-z][a-z-]*", self.succeed(*command, "--help")):
                self.assertIn(option, manual)

    def test_the_completions_are_those_of_the_program(self):
        self.check_file("src/cli/completions/shoal.bash", "completion", "bash")
        self.check_file("src/cli/completions/_shoal", "completion", "zsh")
        self.check_file("src/cli/completions/shoal.fish", "completion", "fish")

    def complete(self, line):
        """What bash offers for a line."""
        script = (harness.SOURCE / "src/cli/completions/shoal.bash").as_posix()
        program = (f'source {script}; COMP_WORDS=({line}); '
                   'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shoal; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "-c", program], capture_output=True, text=True,
                              check=True, timeout=20, cwd="/").stdout.split()

    def test_bash_completes_commands_options_and_choices(self):
        self.assertEqual(self.complete("shoal tok"), ["tokenize"])
        self.assertEqual(self.complete("shoal bench fab"), ["fabric"])
        self.assertEqual(self.complete("shoal run m.gguf --temp"), ["--temperature"])
        self.assertEqual(self.complete("shoal run m.gguf --link ''"), ["auto", "shm", "tcp", "verbs", "ucx"])
        self.assertEqual(self.complete("shoal doctor --link v"), ["verbs"])
        self.assertEqual(self.complete("shoal bench fabric --link t"), ["tcp"])
        self.assertIn("smollm2", self.complete("shoal run smol"))
        self.assertEqual(self.complete("shoal run m.gguf --seed ''"), [])


class BadInputTest(harness.Case):
    def test_a_command_line_that_cannot_be_meant_exits_with_2(self):
        self.fail_with("runn", code=2, says="shoal --help")
        self.fail_with("run", code=2, says="MODEL")
        self.fail_with("run", "m", "--nodes", "0", code=2, says="--nodes")
        self.fail_with("run", "m", "--nodes", "many", code=2, says=["--nodes", "numa"])
        self.fail_with("run", "m", "--nodes", "65", code=2, says=["--nodes", "64"])
        self.fail_with("run", "m", "--nodes", "2x", code=2, says="--nodes")
        self.fail_with("run", "m", "--link", "string", code=2, says="shm")
        self.fail_with("run", "m", "--bogus", code=2, says="--bogus")
        self.fail_with("run", "m", "--kernels", "abacus", code=2, says=["abacus", "portable"])
        for name in self.succeed_json("info")["kernels_not_here"]:
            self.fail_with("run", "m", "--kernels", name, code=2, says=[f"{name} needs", "portable"])
        self.fail_with("run", "m", "--kv", "q3", code=2, says="q8")
        self.fail_with("eval", "m", code=2, says="--text")

    def test_a_misspelt_name_is_told_with_the_nearest_one(self):
        line = self.fail_with("run", "m", "hi", "there", "--tempreature", "0", code=2,
                              says=["no option --tempreature", "did you mean --temperature?"])
        self.assertNotIn("there 0", line)
        self.fail_with("run", "m", "--tempreature=0", code=2, says="no option --tempreature;")
        self.fail_with("run", "--hlep", code=2, says=["no option --hlep", "--help?"])
        self.fail_with("runn", code=2, says=["no command runn", "did you mean run?"])
        self.fail_with("bench", "modle", code=2, says="did you mean model?")
        line = self.fail_with("run", "m", "--entirely-new", code=2, says="--entirely-new")
        self.assertNotIn("did you mean", line)
        self.fail_with("run", "m", "hi", "there", "you", code=2, says=['"there you"', "quotes"])

    def test_text_that_is_not_utf8_is_refused(self):
        for prompt, byte in (("\udcff", 0), ("ab\udcc3", 2)):
            for raw in ([], ["--raw"]):
                self.fail_with("run", harness.demo_model(), prompt, *raw,
                               says=f"not UTF-8 at byte {byte}")

    def test_a_model_that_is_not_there_is_named(self):
        self.fail_with("run", "/no/such/model.gguf", "hi", says="/no/such/model.gguf")
        self.fail_with("run", "no-such-name", "hi", says=["no-such-name", "smollm2"])
        self.fail_with("info", "/no/such/model.gguf", says="/no/such/model.gguf")

    def test_a_file_that_is_no_model_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("text.gguf", b"once upon a time " * 64), ("empty.gguf", b""),
                                  ("magic.gguf", b"GGUF")):
                path = Path(folder) / name
                path.write_bytes(content)
                for command in (["run"], ["info"], ["plan"]):
                    with self.subTest(name=name, command=command):
                        self.fail_with(*command, path, *(["hi"] if command == ["run"] else []),
                                       says=name)

    def test_sampling_out_of_range_is_refused_before_anything_is_loaded(self):
        model = "/no/such/model.gguf"  # what loads it complains of something else
        for option, value, says in (
                ("--temperature", "-1", "temperature is -1"),
                ("--temperature", "inf", "a finite number of 0 or more"),
                ("--temperature", "hot", "'hot' is no number"),
                ("--temperature", "nan", "temperature is nan"), ("--top-p", "2", "top_p is 2"),
                ("--min-p", "-0.5", "min_p is -0.5"),
                ("--repetition-penalty", "0", "repetition_penalty is 0"),
                ("--repetition-penalty", "inf", "must be from 0.001 to 1000"),
                ("--presence-penalty", "inf", "presence_penalty is inf"),
                ("--frequency-penalty", "nan", "frequency_penalty is nan"),
                ("--top-k", "-3", "not in range 0 to 2147483647"),
                ("--top-k", "99999999999", "not in range 0 to 2147483647"),
                ("--seed", "18446744073709551616", "--seed"),
                ("--seed", "x", "--seed"), ("--logit-bias", "5", "--logit-bias 5"),
                ("--logit-bias", "5=x", "--logit-bias 5=x"),
                ("--logit-bias", "-1=1", "--logit-bias -1=1 is not ID=BIAS"),
                ("--stop", "", "--stop"), ("--stop", "a\udcff", "--stop is not UTF-8 at byte 1"),
                ("--system", "\udcff", "--system is not UTF-8 at byte 0")):
            for prompt in (["hi"], []):
                with self.subTest(option=option, value=value, prompt=prompt):
                    line = self.fail_with("run", model, *prompt, f"{option}={value}", code=2,
                                          says=says)
                    self.assertNotIn(model, line)
        self.fail_with("run", model, "hi", "--temperature", "1", says=model)

    def test_layouts_that_cannot_work_are_refused(self):
        model = harness.demo_model()
        self.fail_with("plan", model, "--nodes", "2", "--split", "1,1,1", says="3")
        self.fail_with("plan", model, "--nodes", "2", "--split", "1,x", says="x")
        self.fail_with("plan", model, "--nodes", "2", "--split", "1,-1", says="-1")
        self.fail_with("plan", model, "--nodes", "64", says="9")
        self.fail_with("plan", model, "--ctx", "9999999", says=["8192", "a smaller --ctx"])

    def test_a_number_that_is_none_or_too_large_is_told_its_range(self):
        for value in ("1", "-1", "99999999999", "many"):
            self.fail_with("plan", "m", f"--ctx={value}", code=2,
                           says=["--ctx", f"{value} not in range 16 to 16777216"])
        for value in ("99999", "-1", "http"):
            self.fail_with("serve", "m", f"--port={value}", code=2,
                           says=f"{value} not in range 0 to 65535")

    def test_a_context_that_another_option_asks_for_is_blamed_on_that_option(self):
        model = harness.demo_model()
        text = harness.DATA / "perplexity.txt"
        for command, option in ((["eval", model, "--text", text, "--window", "99999"], "--window"),
                                (["trace", model, "--depth", "9000", "-o", os.devnull], "--depth"),
                                (["trace", model, "--prompt-tokens", "9000", "-o", os.devnull],
                                 "--prompt-tokens"),
                                (["bench", "model", model, "-p", "9000", "-n", "4"], "-p")):
            with self.subTest(command=command):
                line = self.fail_with(*command, says=["8192", f"a smaller {option}"]
                                      if option != "-p" else ["8192", "--depth, -p or -n"])
                self.assertNotIn("--ctx", line)
        self.succeed("eval", model, "--text", text, "--window", "8", "--limit", "1")

    def test_a_prompt_longer_than_the_context_is_refused(self):
        self.fail_with("run", harness.demo_model(), "word " * 200, "--ctx", "64",
                       says=["64", "--ctx"])
        line = self.fail_with("run", harness.demo_model(), "word " * 9000,
                              says=["8192", "a shorter prompt"])
        self.assertNotIn("--ctx", line)

    def test_options_that_contradict_each_other_are_refused(self):
        model = harness.demo_model()
        self.fail_with("run", model, "--json", code=2, says="PROMPT")
        self.fail_with("run", model, "--raw", code=2, says="PROMPT")
        self.fail_with("run", model, "hi", "--special", code=2, says="--raw")
        self.fail_with("run", model, "hi", "--raw", "--system", "x", code=2, says="--system")
        self.fail_with("run", model, "hi", "--messages", "x.json", code=2, says="--messages")
        self.fail_with("info", "", code=2, says="MODEL is empty")
        self.fail_with("info", "--template", code=2, says="--template needs a MODEL")
        self.fail_with("run", model, "hi", "--exact", "--kernels", "portable", says="--kernels")
        self.fail_with("run", model, "hi", "--exact", "--kv", "q8", says="--kv q8")

    def test_files_that_cannot_be_read_are_named(self):
        model = harness.demo_model()
        self.fail_with("eval", model, "--text", "/no/such.txt", says="/no/such.txt")
        self.fail_with("run", model, "--messages", "/no/such.json", says="/no/such.json")
        with tempfile.TemporaryDirectory() as folder:
            for name, content, says in (("text.json", "once", "not valid JSON"),
                                        ("deep.json", "[" * 1000000, "nested deeper"),
                                        ("object.json", "{}", "JSON list"),
                                        ("none.json", "[]", "at least one message"),
                                        ("bare.json", '["hi"]', "message 1 is no"),
                                        ("mute.json", '[{"role": "user"}]',
                                         "message 1 has no content"),
                                        ("parts.json", '[{"role": "user", "content": [1]}]',
                                         "message 1 has a content that is no text"),
                                        ("role.json", '[{"role": "user", "content": "a"},'
                                         ' {"role": "king", "content": "b"}]',
                                         'message 2 has the role "king"')):
                path = Path(folder) / name
                path.write_text(content)
                self.fail_with("run", model, "--messages", path, says=[name, says])
        text = harness.DATA / "perplexity.txt"
        self.fail_with("eval", model, "--text", text, "--reference", text, says=".top64")


class OutputTest(harness.Case):
    def test_a_closed_pipe_is_no_error(self):
        process = subprocess.Popen([harness.SHOAL, "tokenize", harness.demo_model(), "-"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.close()
        process.stdin.write(b"word " * 100000)
        process.stdin.close()
        errors = process.stderr.read()
        self.assertEqual(process.wait(120), 0)
        self.assertEqual(errors, b"")
        process.stderr.close()

    def test_a_full_disk_is_an_error(self):
        for argument in ("info", "--help", "--version"):
            with self.subTest(argument=argument), open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([harness.SHOAL, argument], stdout=full,
                                        stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(result.returncode, 1)
                self.assertIn("No space left", result.stderr)

    def test_a_closed_standard_output_is_an_error_and_never_another_file(self):
        for options in ([], ["--nodes", "2"], ["--nodes", "2", "--link", "tcp"]):
            with self.subTest(options=options):
                result = self.run_without(">&-", "hi", "-n", "3", *options)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("cannot write to standard output: Bad file descriptor",
                              result.stderr)

    def test_closed_standard_error_and_input_do_no_harm(self):
        for closed in ("2>&-", "<&-", "<&- 2>&-"):
            with self.subTest(closed=closed):
                result = self.run_without(closed, "hi", "-n", "3", "--temperature", "0", "--nodes",
                                          "2")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertTrue(result.stdout.strip())
        self.assertEqual(self.run_without("<&- >&- 2>&-", "hi", "-n", "3").returncode, 1)

    @staticmethod
    def run_without(closed, *arguments):
        """Runs `shoal run MODEL` by a shell that closes descriptors."""
        return subprocess.run(["sh", "-c", f'exec "$0" run "$@" {closed}', harness.SHOAL,
                               harness.demo_model(), *arguments],
                              capture_output=True, text=True, timeout=60)


class NodeTest(harness.Case):
    def test_a_node_is_silent_about_a_group_that_broke_while_it_joined(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # The join socket has the number 3.
            node = subprocess.Popen(["sh", "-c", f'exec "$0" node 3<&{theirs.fileno()}',
                                     harness.SHOAL], pass_fds=[theirs.fileno()],
                                    stderr=subprocess.PIPE, text=True)
            theirs.close()
            ours.close()
            self.assertEqual(node.communicate(timeout=30), (None, ""))
            self.assertEqual(node.returncode, 1)

    def test_a_node_without_a_group_says_so(self):
        self.fail_with("node", says="this is no node of a local group")


class InterruptTest(harness.Case):
    def test_an_interrupt_ends_measurements_with_130(self):
        model = harness.demo_model()
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "long.txt"
            text.write_text("All work and no play makes a dull day. " * 20000)
            for command in (["eval", model, "--text", text],
                            ["bench", "model", model, "--repeats", "100000"],
                            ["trace", model, "--depth", "8000", "-o", Path(folder) / "t.json"]):
                with self.subTest(command=command):
                    process = subprocess.Popen([harness.SHOAL, *map(str, command)],
                                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    self.wait_until(lambda: self.catches_interrupts(process.pid), "the scope", 60)
                    process.send_signal(signal.SIGINT)
                    errors = process.communicate(timeout=60)[1]
                    self.assertEqual(process.returncode, 130, errors)

    @staticmethod
    def catches_interrupts(pid):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16)
        return bool(caught >> (signal.SIGINT - 1) & 1)


class InfoTest(harness.Case):
    def test_of_the_machine_it_tells_what_kernels_need(self):
        info = self.succeed_json("info")
        self.assertGreaterEqual(info["default_threads"], 1)
        self.assertGreater(info["memory_available"], 0)
        self.assertIn(info["kernels"], info["kernels_available"])
        # No processor runs both Arm's and x86-64's kernels.
        self.assertTrue(info["kernels_not_here"])
        self.assertFalse(set(info["kernels_not_here"]) & set(info["kernels_available"]))
        self.assertIn(f"not on this processor: {', '.join(info['kernels_not_here'])}",
                      self.succeed("info"))
        self.assertIn(info["cpu"], self.succeed("info"))

    def test_of_links_it_tells_the_default_and_the_rdma_ports(self):
        info = self.succeed_json("info")
        self.assertEqual(info["local_link"], "shm")
        self.assertRegex(self.succeed("info"), r"link +shm between nodes of this machine")
        if Path("/sys/class/infiniband").is_dir():
            self.skipTest("this machine has RDMA devices")
        self.assertEqual(info["rdma"]["ports"], [])
        self.assertRegex(info["rdma"]["unavailable"], "no RDMA (device|library)")
        self.assertIn(info["rdma"]["unavailable"], self.succeed("info"))

    def test_of_a_model_it_tells_the_shape(self):
        info = self.succeed_json("info", harness.demo_model())
        shape = info["config"]
        self.assertEqual((shape["layers"], shape["hidden"], shape["heads"], shape["kv_heads"]),
                         (30, 576, 9, 3))
        self.assertEqual(shape["context"], 8192)
        self.assertEqual(info["text"]["vocabulary"], 49152)
        self.assertTrue(info["text"]["has_chat_template"])
        self.assertEqual(sum(t["bytes"] for t in info["types"].values()), info["tensor_bytes"])
        text = self.succeed("info", harness.demo_model(), "--template")
        self.assertIn("<|im_start|>", text)
        self.assertEqual(info["parameters"], 134515008)

    def test_a_plan_covers_the_model_once(self):
        plan = self.succeed_json("plan", harness.demo_model(), "--nodes", "3", "--split", "2,1,1")
        for kind, total in (("heads", 9), ("ffn", 1536)):
            ends = [rank["layers"][0][kind] for rank in plan["ranks"]]
            self.assertEqual(ends[0][0], 0)
            self.assertEqual(ends[-1][1], total)
            self.assertTrue(all(a[1] == b[0] for a, b in zip(ends, ends[1:])))
        self.assertIn("KV", self.succeed("plan", harness.demo_model(), "--nodes", "2", "--explain"))

    def test_a_pulled_model_is_told_as_json(self):
        pulled = self.succeed_json("pull", "smollm2")
        self.assertEqual(pulled["path"], harness.demo_model())
        self.assertEqual((pulled["name"], pulled["licence"]), ("smollm2", "Apache-2.0"))
        by_path = self.succeed_json("pull", harness.demo_model())
        self.assertEqual(by_path["path"], harness.demo_model())
        self.assertFalse(by_path["was_fetched"])
        self.assertNotIn("licence", by_path)

    def test_a_plan_by_numa_domains_says_what_it_found(self):
        folders = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
        usable = [folder for folder in folders
                  if self.numbers(folder / "cpulist") & os.sched_getaffinity(0)]
        text = self.succeed("plan", harness.demo_model(), "--nodes", "numa")
        if len(usable) > 1:
            self.assertIn(f"{len(usable)} nodes, on the NUMA domains", text)
        else:
            self.assertIn("over 1 node\n", text)
            self.assertIn("one NUMA domain: one node" if usable else "no NUMA domains: one node", text)

    @staticmethod
    def numbers(path):
        ranges = [part.split("-") for part in path.read_text().strip().split(",") if part]
        return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}

    def test_the_list_of_models_has_the_demo_model(self):
        harness.demo_model()
        models = {m["name"]: m for m in self.succeed_json("models")["models"]}
        self.assertIsNotNone(models["smollm2"]["path"])
        self.assertEqual(models["smollm2"]["licence"], "Apache-2.0")


if __name__ == "__main__":
    unittest.main()
