"""tools/generator.h through examples/generator.c."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import ENVIRONMENT, ROOT, GeneratorTest

from lanewise import _protocol as p
from lanewise._parent import take

SOURCE = ROOT / "examples/generator.c"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror", f"-I{ROOT / 'tools'}"]


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class GeneratorInC(GeneratorTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.program = f"{folder.name}/generator"
        command = ["cc", "-std=c99", "-O2", *WARNINGS, str(SOURCE), "-o", cls.program, "-lm"]
        cls.compiler = subprocess.run(command, capture_output=True, text=True)

    def built(self, *arguments, **options):
        self.assertEqual((self.compiler.returncode, self.compiler.stderr), (0, ""))
        return self.started([self.program, *arguments], **options)

    def test_it_compiles_as_c99_without_warnings_and_its_samples_are_sines(self):
        child = self.built("50", seed=2**64 - 1)
        self.assertEqual(str(child.hello.form), "float32[8] float32[1]")
        samples = take(child, 99)
        self.assertEqual(len(samples), 50)
        self.assertIsNone(child.sample())
        for a, b in zip(samples, samples[1:]):
            self.assertAlmostEqual(float(a.y[0]), float(b.x[7]), delta=0.006)
        self.assertEqual(child.bye(), 0)

    def test_it_resets_saves_and_restores(self):
        child = self.built(seed=3, stream='gén "3" \\ \x01')
        first = take(child, 20)
        child.reset(4, 1)
        self.assertFalse(take(child, 1)[0].same(first[0]))
        child.reset(3, 2)
        again = take(child, 20)
        self.assertTrue(all(a.same(b) for a, b in zip(first, again, strict=True)))
        at, state = child.save()
        rest = [s for s in take(child, 60) if s.sequence >= at]
        other = self.built(seed=3, run=2)
        other.restore(at, state)
        self.assertTrue(all(a.same(b) for a, b in zip(rest, take(other, len(rest)), strict=True)))

    def test_an_ended_stream_can_be_reset(self):
        child = self.built("5", slots=2)
        for run in range(3):
            self.assertEqual(len(take(child, 9)), 5)
            self.assertIsNone(child.sample())
            child.reset(run, run + 1)

    def test_it_names_a_parent_that_breaks_the_protocol(self):
        child = self.built()
        child.control.send(p.CREDIT, 17)
        self.assertEqual(child.process.wait(5), 1)
        child._logs[1].settle()
        self.assertEqual(child.errors(), b"credit: more than there are slots\n")

    def test_it_leaves_with_status_0_when_the_parent_is_gone(self):
        child = self.built(slots=2)
        take(child, 1)
        child.control.socket.close()
        self.assertEqual(child.process.wait(5), 0)

    def test_without_lanewise_it_says_what_to_do(self):
        done = subprocess.run([self.program], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr, "^this program gives samples to lanewise and was started without it; run it with lanewise"
        )

    def test_python_m_lanewise_check_finds_it_good(self):
        command = [sys.executable, "-m", "lanewise", "check", self.program, "--samples", "300"]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_the_example_in_the_header_compiles_as_c_and_as_cpp(self):
        header = (ROOT / "tools/generator.h").read_text()
        example = re.search(r"( \*   lanewise g;.*?\n \*   \}\n)", header, re.S).group(1)
        body = re.sub(r"(?m)^ \*", "", example)
        text = (
            '#include "generator.h"\nstatic uint64_t t, random_;\nstatic void make(float* x, float* y) { x[0] = (float)t++; y[0] = x[0]; }\n'
            "int main(void) {\n  float x[8] = {0}, y[1];\n" + body.replace("random =", "random_ =") + "}\n"
        )
        for compiler, standard, name in (("cc", "-std=c99", "e.c"), ("c++", "-std=c++20", "e.cc")):
            if shutil.which(compiler):
                (self.folder / name).write_text(text)
                command = [compiler, standard, *WARNINGS, str(self.folder / name), "-o", str(self.folder / "e")]
                done = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), text)
                child = self.started([str(self.folder / "e")])
                self.assertEqual([float(s.y[0]) for s in take(child, 3)], [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
