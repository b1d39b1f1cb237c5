"""python -m lanewise check FILE: tries a generator as lanewise would use it."""

from __future__ import annotations

import argparse
import sys

from lanewise._check import Check, command_for
from lanewise._version import __version__


def main() -> int:
    parser = argparse.ArgumentParser("python -m lanewise", description="Helpers for generators of lanewise.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    checker = commands.add_parser(
        "check",
        help="tries a generator as lanewise would use it",
        description="Starts a generator as lanewise would and reports its samples and their rate, whether they depend "
        "on the seed and on nothing else, whether its state can be saved, and how it takes reset and bye.",
        epilog="Exit: 0 all is well, 1 something is not, 2 command line.",
    )
    checker.add_argument("file", metavar="FILE", help="a Python file, or any program")
    checker.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT", help="of the program; behind -- where they begin with -"
    )
    checker.add_argument(
        "--samples", type=_positive, default=1000, metavar="N", help="samples to look at (default: 1000)"
    )
    checker.add_argument("--seed", type=_seed, default=1, metavar="S", help="below 2^64 (default: 1)")
    checker.add_argument("--stream", default="gen0", metavar="ID", help="id of the stream (default: gen0)")
    checker.add_argument(
        "--timeout", type=_positive, default=60, metavar="SECONDS", help="longest wait for a sample (default: 60)"
    )
    checker.add_argument(
        "--recorded", action="store_true", help="the samples are recorded: they need not depend on the seed"
    )
    options = parser.parse_args()
    try:
        command = command_for(options.file, options.arguments)
    except OSError as e:
        parser.error(f"{options.file} cannot be run: {e.strerror or e}")
    check = Check(
        command=command, samples=options.samples, seed=options.seed, stream=options.stream, timeout=options.timeout,
        recorded=options.recorded,
    )  # fmt: skip
    return 0 if check.all() else 1


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number below 2^64")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
