"""tools/gpu_check on a machine without a GPU: what it refuses, what it keeps, and what it leaves behind.

In the place of `lanewise`, `nvidia-smi` and PyTorch stand small programs of the tests. LANEWISE names the built command."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
# Without the packages of .venv, PyTorch among them.
BARE_PYTHON = [os.path.realpath(sys.executable), "-S"]
TRAINS = 'while [ "$1" != --out ]; do shift; [ $# -gt 0 ] || exit 0; done; mkdir -p "$2"\n'  # a lanewise; $2 is its directory


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        for name in ("bin", "build", "tmp"):
            (self.folder / name).mkdir()
        self.json = self.folder / "found.json"
        self.environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        self.environment |= {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "TMPDIR": str(self.folder / "tmp")}

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

    def start(self, *arguments, python=(sys.executable,), tool=ROOT / "tools/gpu_check", **environment):
        started = subprocess.Popen([*python, tool, *arguments], env=self.environment | environment, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(started.wait)
        self.addCleanup(started.kill)
        return started

    def ended(self, started):
        """Exit code, output, errors; no program of the tests leaves anything in the temporary folder."""
        out, err = started.communicate(timeout=LIMIT_S)
        self.assertNotIn("Traceback", err)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        return started.returncode, out, err

    def run_it(self, *arguments, **options):
        return self.ended(self.start(*arguments, **options))

    def dry(self, *arguments, **options):
        return self.run_it("--dry-run", "--build", str(self.folder / "build"), *arguments, **options)

    def wait_until(self, holds, started):
        late = time.monotonic() + LIMIT_S
        while not holds():
            if started.poll() is not None:
                self.fail(f"exit {started.poll()}: {started.communicate()}")
            self.assertLess(time.monotonic(), late, "it does not come to this")
            time.sleep(0.01)

    # ---- refused

    def test_no_gpu_is_exit_9_with_what_nvidia_smi_said_before_anything_else(self):
        said = {
            "nvidia-smi is not here": None,
            "nvidia-smi, exit 9: the driver is not there": "echo the driver\necho is not there >&2\nexit 9\n",
            "nvidia-smi, exit 0: no line": "exit 0\n",
        }
        for what, text in said.items():
            with self.subTest(what):
                if text:
                    self.program("bin/nvidia-smi", text)
                elif shutil.which("nvidia-smi", path=self.environment["PATH"]):
                    continue
                self.assertEqual(
                    self.run_it("--json", str(self.json)),
                    (9, "", f"error: there is no GPU here ({what}); tools/gpu_check --dry-run goes through the same on emulated ones\n"))
                self.assertFalse(self.json.exists())

    def test_an_nvidia_smi_that_is_no_program_is_exit_9(self):
        (self.folder / "bin/nvidia-smi").write_bytes(b"\x7fELF but not really")
        (self.folder / "bin/nvidia-smi").chmod(0o755)
        code, _, err = self.run_it()
        self.assertEqual(code, 9)
        self.assertIn("Exec format error", err)

    def test_a_build_without_lanewise_is_exit_2_and_nothing_is_built(self):
        (self.folder / "build/lanewise").mkdir()
        for given, named in ((self.folder / "build", self.folder / "build"), ("/nowhere", "/nowhere"), ("", "''")):
            code, out, err = self.run_it("--dry-run", "--build", str(given))
            self.assertEqual((code, out, err.splitlines()[-1]), (2, "", f"gpu_check: error: argument --build: no lanewise in {named}"))

    def test_a_file_that_cannot_be_written_is_exit_2_before_the_checks(self):
        self.program("build/lanewise", f"touch {self.folder / 'started'}\n")
        reasons = {"/nowhere/x.json": "No such file or directory", "/": "Is a directory", "": "Is a directory",
                   "/dev/full": "No space left on device"}
        for path, reason in reasons.items():
            with self.subTest(path):
                self.assertEqual(self.dry("--json", path), (2, "", f"error: cannot write {path or repr('')}: {reason}\n"))
        self.assertFalse((self.folder / "started").exists())

    # ---- kept

    def test_the_file_takes_the_place_of_an_older_one_also_through_a_link(self):
        self.program("build/lanewise", "")
        self.json.write_text("old")
        link = self.folder / "link.json"
        link.symlink_to(self.json.name)
        before = sorted(self.folder.iterdir())
        with self.json.open() as old:
            self.assertEqual(self.dry("--only", "machine", "--json", str(link))[0], 0)
            self.assertEqual(old.read(), "old")  # replaced, not written over
        self.assertTrue(link.is_symlink())
        self.assertEqual(list(json.loads(self.json.read_text())["checks"]), ["machine"])
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_file_that_can_no_longer_be_written_does_not_end_the_checks(self):
        place = self.folder / "place"
        place.mkdir()
        self.program("build/lanewise", TRAINS + f"rm -rf {place}\n")
        code, out, err = self.dry("--only", "again", "hang", "--json", str(place / "found.json"))
        self.assertEqual(code, 1)
        self.assertEqual([line.split()[:2] for line in out.splitlines()], [["FAILS", "again:"], ["FAILS", "hang:"]])
        self.assertEqual(err, 2 * f"error: cannot write {place / 'found.json'}: No such file or directory\n")

    def test_whatever_a_check_meets_is_its_failure_alone(self):
        self.program("build/lanewise", TRAINS + 'echo \'{"devices": [], "steps_per_second": 0}\' >"$2/report.json"\n')
        code, out, _ = self.dry("--only", "machine", "again", "replay", "hang", "speed", "--json", str(self.json))
        self.assertEqual(code, 1)
        self.assertEqual([line.split()[:2] for line in out.splitlines()],
                         [["holds", "machine:"], ["FAILS", "again:"], ["FAILS", "replay:"], ["FAILS", "hang:"], ["FAILS", "speed:"]])
        found = {name: row.get("why") for name, row in json.loads(self.json.read_text())["checks"].items()}
        self.assertRegex(found["again"], r"^KeyError in line \d+: 'weights_sha256'$")
        self.assertEqual(found["replay"], "the report names no device")
        self.assertRegex(found["speed"], r"^ZeroDivisionError in line \d+: ")
        for name in ("again", "replay", "speed"):
            self.assertIn(found[name], out)

    # ---- PyTorch

    def copy(self):
        """The tool where it has no .venv."""
        (self.folder / "tools").mkdir()
        return shutil.copy(ROOT / "tools/gpu_check", self.folder / "tools/gpu_check")

    def test_without_pytorch_it_leaves_out_what_needs_it(self):
        self.program("build/lanewise", "")
        (self.folder / "packages/torch").mkdir(parents=True)  # a folder of that name is none
        tool = self.copy()
        for packages in ("", str(self.folder / "packages")):
            code, out, _ = self.dry("--only", "machine", "speed", python=BARE_PYTHON, tool=tool, PYTHONPATH=packages)
            self.assertEqual((code, [line.split()[:3] for line in out.splitlines()]),
                             (0, [["holds", "machine:", "the"], ["left", "out", "speed:"]]))
            self.assertTrue(out.endswith("; no PyTorch\n"), out)

    def test_a_python_without_pytorch_hands_over_to_that_of_venv(self):
        self.program(".venv/bin/python", 'echo "$@"\n')
        tool = self.copy()
        self.assertEqual(self.run_it("--dry-run", "--only", "speed", python=BARE_PYTHON, tool=tool),
                         (0, f"{tool} --dry-run --only speed\n", ""))

    # ---- libraries

    def paths_seen(self, text, **environment):
        """The LD_LIBRARY_PATH of lanewise, where `text` is the beginning of that program."""
        seen = self.folder / "seen"
        seen.unlink(missing_ok=True)
        self.program("build/lanewise", text + f'echo "${{LD_LIBRARY_PATH-unset}}" >>{seen}\n')
        self.dry("--only", "hang", **environment)
        return seen.read_text().splitlines()[-1]

    def test_the_libraries_of_the_build_are_used_where_it_finds_them(self):
        self.assertEqual(self.paths_seen(""), "unset")
        self.assertEqual(self.paths_seen("", LD_LIBRARY_PATH="/some:/other"), "/some:/other")

    def test_those_of_the_python_are_used_where_it_does_not(self):
        needs = 'case $LD_LIBRARY_PATH in */torch/lib*) ;; *) exit 127;; esac\n'
        path = self.paths_seen(needs, LD_LIBRARY_PATH=":/some:").split(":")
        self.assertTrue(path[0].endswith("/torch/lib"), path)
        self.assertEqual(path[-1], "/some")
        self.assertNotIn("", path)

    def test_it_says_which_pytorch_is_not_that_of_requirements(self):
        torch = Path(importlib.util.find_spec("torch").origin).parent
        other = self.folder / "other/torch"
        other.mkdir(parents=True)
        (other / "lib").symlink_to(torch / "lib")
        (other / "version.py").write_text("__version__ = '1.2.3+cu1'\n")
        pinned = next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))[7:]
        build = str(Path(os.environ["LANEWISE"]).parent)
        arguments = ("--dry-run", "--build", build, "--only", "machine", "--json", str(self.json))
        self.assertEqual(len(self.run_it(*arguments)[1].splitlines()), 1)
        code, out, _ = self.run_it(*arguments, LD_LIBRARY_PATH=str(other / "lib"))
        self.assertEqual((code, out.splitlines()[0]), (0, f"note: lanewise has PyTorch 1.2.3+cu1; requirements.txt names {pinned}"))
        self.assertEqual(json.loads(self.json.read_text())["torch"]["lanewise"], "1.2.3+cu1")

    # ---- stopped

    def check_nothing_is_left(self, started, pids, number):
        self.wait_until(lambda: pids.exists() and len(pids.read_text().split()) >= 2, started)
        started.send_signal(number)
        try:
            code, _, err = self.ended(started)
        finally:
            left = [int(pid) for pid in pids.read_text().split() if lives(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        self.assertEqual((code, err, left), (128 + number, f"stopped by {signal.Signals(number).name}\n", []))

    def test_stopped_it_ends_what_it_started_with_what_that_started(self):
        pids = self.folder / "pids"
        for number in (signal.SIGTERM, signal.SIGHUP):
            for check in ("again", "flat_memory"):
                with self.subTest(number=number, check=check):
                    pids.unlink(missing_ok=True)
                    # Deaf to TERM, and with a child.
                    self.program("build/lanewise", '[ "$1" != --version ] && [ $# -gt 0 ] || exit 0\n'
                                 f"trap '' TERM HUP\nsleep 600 & echo $$ $! >{pids}\nwait\n")
                    started = self.start("--dry-run", "--build", str(self.folder / "build"), "--only", check)
                    self.check_nothing_is_left(started, pids, number)

    def test_killed_it_takes_its_programs_along(self):
        pids = self.folder / "pids"
        self.program("build/lanewise", f'[ "$1" != --version ] && [ $# -gt 0 ] || exit 0\necho $$ >{pids}\nexec sleep 600\n')
        started = self.start("--dry-run", "--build", str(self.folder / "build"), "--only", "again")
        self.wait_until(lambda: pids.exists() and pids.read_text().strip(), started)
        started.kill()
        started.communicate(timeout=LIMIT_S)
        late = time.monotonic() + LIMIT_S
        while lives(int(pids.read_text())) and time.monotonic() < late:
            time.sleep(0.01)
        self.assertFalse(lives(int(pids.read_text())))
        shutil.rmtree(self.folder / "tmp")  # what a killed program cannot do

    def test_nobody_reads_its_output_and_the_file_has_all(self):
        self.program("build/lanewise", "exit 1\n")
        started = self.start("--dry-run", "--build", str(self.folder / "build"), "--only", "again", "waits",
                             "--json", str(self.json))
        started.stdout.close()
        started.stdout = None
        code, _, _ = self.ended(started)
        self.assertEqual((code, set(json.loads(self.json.read_text())["checks"])), (1, {"again", "waits"}))

    def test_stopped_it_gives_back_the_memory_that_it_holds(self):
        self.program("bin/nvidia-smi", "echo a GPU\n")
        self.program("build/lanewise", "")
        pids = self.folder / "pids"
        fake = self.folder / "packages/torch/__init__.py"
        fake.parent.mkdir(parents=True)
        fake.write_text(f"import os, time\nopen({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}}')\ntime.sleep(600)\n")
        started = self.start("--build", str(self.folder / "build"), "--only", "out_of_memory", PYTHONPATH=str(self.folder / "packages"))
        self.check_nothing_is_left(started, pids, signal.SIGTERM)

    def test_memory_that_cannot_be_taken_is_a_failure_with_the_reason(self):
        self.program("bin/nvidia-smi", "echo a GPU\n")
        self.program("build/lanewise", "")
        self.program("packages/torch/__init__.py", "raise RuntimeError('no room at all')\n")
        code, out, _ = self.run_it("--build", str(self.folder / "build"), "--only", "out_of_memory",
                                   PYTHONPATH=str(self.folder / "packages"))
        self.assertEqual(code, 1)
        self.assertTrue(out.endswith("; the memory could not be taken: RuntimeError: no room at all\n"), out)


if __name__ == "__main__":
    unittest.main()
