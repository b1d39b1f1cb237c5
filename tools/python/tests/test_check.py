"""python -m lanewise check, the README's generators, Gymnasium, and the protocol's document."""

import importlib.util
import re
import subprocess
import sys
import unittest
import zlib

from support import ENVIRONMENT, PACKAGE, ROOT, GeneratorTest

from lanewise import _protocol as p
from lanewise._parent import take


class CheckTest(GeneratorTest):
    def check(self, source, *options):
        """Exit code and output, numbers of seconds and rates aside."""
        file = self.write(source) if "\n" in source else source
        command = [sys.executable, "-m", "lanewise", "check", str(file), *options]
        done = subprocess.run(command, env=ENVIRONMENT, cwd=self.folder, capture_output=True, text=True)
        text = re.sub(r"\d+\.\d\d s", "T s", done.stdout)
        return done.returncode, re.sub(r"[\d,]+ samples/s", "R samples/s", text), done.stderr


class Check(CheckTest):
    def test_a_good_generator(self):
        code, text, errors = self.check("""
            print("a stray print")
            class Draw:
                def __init__(self, seed, stream): self.rng = np.random.default_rng(seed)
                def __iter__(self):
                    while True: yield self.rng.random(2), [float("nan")]
                def state(self): return self.rng.bit_generator.state
                def restore(self, state): self.rng.bit_generator.state = state
            serve(Draw)
        """, "--samples", "100")  # fmt: skip
        text = re.sub(r"[\d,]+ bytes at sample \d+", "N bytes at sample K", text)
        self.assertEqual(
            text,
            "ok   start    sim.py, after T s: x float64[2], y float64[1]\n"
            "ok   samples  100 in T s, R samples/s; NaN: 0 values of x, 100 of y\n"
            "ok   reset    begins anew, with the same samples for the same seed\n"
            "ok   bye      leaves after T s\n"
            "note stdout   a stray print\n"
            "ok   seed     the same seed gives the same samples, another one others\n"
            "ok   state    N bytes at sample K; goes on bit for bit in another process\n"
            "this generator is ready for lanewise\n",
        )
        self.assertEqual((code, errors), (0, ""))

    def test_what_is_wrong_is_said(self):
        cases = {
            "def sim(seed, stream):\n  while True: yield np.random.rand(2), 1.0\nserve(sim)": (
                r"BAD  reset    sample 0 is another one after a reset with the same seed: x\[0\] was [\d.e-]+ and is [\d.e-]+\n"
                r"ok   bye[^\n]*\nBAD  seed     sample 0 is another one in another process with the same seed: "
            ),
            "def sim(seed, stream):\n  while True: yield 1.0, 1.0\nserve(sim)": (
                "BAD  seed     another seed gives the same samples: draw them from the seed, or say --recorded if they are recorded data\n"
            ),
            "def sim(seed, stream):\n  yield seed, 1\n  raise ValueError('no more')\nserve(sim)": (
                r'BAD  samples  Traceback \(most recent call last\):\n {16}File "[^"]*sim.py", line 6, in sim\n'
                r" {18}raise ValueError\('no more'\)\n {14}ValueError: no more\n"
            ),
            "class A:\n  def __init__(self, seed, stream): self.k = seed\n"
            "  def __iter__(self):\n    while True:\n      self.k += 1\n      yield self.k, 1\n"
            "  def state(self): return self.k\n  def restore(self, k): self.k = k + 1\nserve(A)": (
                r"BAD  state    sample 0 after a restored state is not the one that came after the saved one: x\[0\] was \d+ and is \d+\n"
            ),
            "import sys\ndef sim(seed, stream):\n  yield seed, 1\n  sys.stderr.write('so be it\\n')\n  sys.exit(3)\nserve(sim)": (
                r"BAD  samples  the generator has left with status 3; it said last:\n {14}so be it\n"
            ),
            "print('no serve')\n": r"BAD  start    the generator has left with status 0\nnote stdout   no serve\n",
        }
        for source, expected in cases.items():
            with self.subTest(source):
                code, text, _ = self.check("\n" + source, "--samples", "50")
                self.assertEqual(code, 1)
                self.assertRegex(text, expected)
                self.assertTrue(text.endswith("this generator is not ready for lanewise\n"), text)

    def test_recorded_data_need_not_depend_on_the_seed(self):
        code, text, _ = self.check(
            "\ndef sim(seed, stream):\n  for k in range(7): yield k, k\nserve(sim)", "--recorded"
        )
        self.assertEqual(code, 0)
        self.assertIn("ok   samples  7 in T s, R samples/s; then the stream ends\n", text)
        self.assertIn("ok   seed     the samples are recorded\n", text)

    def test_a_wrong_command_line_is_exit_2(self):
        (self.folder / "data.txt").write_text("")
        for arguments, text in (
            (["nothing.py"], "nothing.py cannot be run: there is no such file"),
            (["data.txt"], "data.txt cannot be run: it is neither a .py file nor executable"),
            (["data.txt", "--samples", "0"], "'0' is not a whole number above 0"),
            (["data.txt", "--seed", str(2**64)], "is not a whole number below 2^64"),
        ):
            code, _, errors = self.check(*arguments)
            self.assertEqual(code, 2)
            self.assertIn(text, errors)


class Readme(CheckTest):
    def setUp(self):
        super().setUp()
        readme = (PACKAGE / "README.md").read_text()
        self.blocks = re.findall(r"```python\n(.*?)```", readme, re.S)

    def test_the_ten_lines_work_as_printed(self):
        file = self.folder / "ten.py"
        file.write_text(self.blocks[0])
        self.assertEqual(len([line for line in self.blocks[0].splitlines() if line]), 10)
        code, text, _ = self.check(str(file), "--samples", "200")
        self.assertEqual(code, 0, text)
        self.assertIn("ten.py, after T s: x float64[8], y float64[1]", text)

    def test_the_class_with_state_works_as_printed(self):
        code, text, _ = self.check("\n" + self.blocks[1], "--samples", "200")
        self.assertEqual(code, 0, text)
        self.assertIn("goes on bit for bit in another process", text)


class Gymnasium(CheckTest):
    def test_an_episode_is_a_sequence_and_x_is_observation_and_action(self):
        child = self.child("""
            import sys, types

            class Space:
                def __init__(self, n): self.n = n
                def seed(self, seed): pass

            class Env:  # counts to five by actions of 0 and 1
                observation_space, action_space = Space(0), Space(2)
                def reset(self, seed=None):
                    self.k = 0
                    return np.array([0.0], "float32"), {}
                def step(self, action):
                    self.k += action
                    return np.array([self.k], "float32"), 0.0, self.k == 5, False, {}
                def close(self): open("closed", "w").close()

            def flatten(space, value): return np.eye(space.n)[value] if space.n else value

            utils = types.SimpleNamespace(flatten=flatten)
            sys.modules["gymnasium"] = types.SimpleNamespace(spaces=types.SimpleNamespace(utils=utils))
            serve(from_env(Env, lambda seen, rng: 1))
        """)
        self.assertEqual(str(child.hello.form), "float32[3] float32[1]")
        samples = take(child, 11)
        self.assertEqual([s.x.tolist() for s in samples], [[k % 5, 0, 1] for k in range(11)])
        self.assertEqual([s.y[0] for s in samples], [k % 5 + 1 for k in range(11)])
        self.assertEqual([s.start for s in samples], [k % 5 == 0 for k in range(11)])
        self.assertEqual((child.bye(), (self.folder / "closed").exists()), (0, True))

    @unittest.skipUnless(importlib.util.find_spec("gymnasium"), "there is no gymnasium")
    def test_a_pendulum_is_a_good_generator(self):
        code, text, _ = self.check("\nserve(from_env('Pendulum-v1'))", "--samples", "450")
        self.assertEqual(code, 0, text)
        self.assertIn("x float32[4], y float32[3]", text)


class Document(unittest.TestCase):
    TEXT = (ROOT / "docs/generator-protocol.md").read_text()

    def test_it_lists_the_messages_as_they_are(self):
        rows = re.findall(r"(?m)^\| (\d+) \| (\w+) \| (child|parent) \| ([^|]*) \|", self.TEXT)
        self.assertEqual([row[1] for row in rows], list(p.NAMES[1:]))
        for number, name, sender, body in rows:
            kind = int(number)
            self.assertIn(kind, p.FROM_CHILD if sender == "child" else p.FROM_PARENT)
            if kind in p.BODIES:
                sizes = {"u32": 4, "u64": 8}
                self.assertEqual(sum(sizes[s] for s in re.findall(r"u32|u64", body)), p.BODIES[kind].size, name)

    def test_it_tells_every_word_that_the_code_has_for_a_violation(self):
        told = {
            w
            for row in re.findall(r"(?m)^\| (`[a-z]+`(?:, `[a-z]+`)*) \|", self.TEXT.split("# What is wrong")[1])
            for w in re.findall(r"[a-z]+", row)
        }
        used = set()
        for file in (PACKAGE / "lanewise").glob("_*.py"):
            used |= set(re.findall(r'ProtocolError\(\s*"([a-z]+)"', file.read_text()))
        self.assertEqual(used | {"hello", "welcome"}, told)

    def test_its_crc_is_zlibs(self):
        self.assertIn(f"0x{zlib.crc32(b'123456789'):X}", self.TEXT)


if __name__ == "__main__":
    unittest.main()
