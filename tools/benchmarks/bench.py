"""The groups of tools/bench. A group is a function that returns rows; each row has samples, from which min, median and max
follow. Contenders are measured in turns, so that what the machine does meanwhile meets all of them."""
import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = "build/release"


def row(name, unit, samples, reach=None, sense=None):
    """reach and sense are None for what is only reported."""
    return {"name": name, "unit": unit, "min": min(samples), "median": statistics.median(samples), "max": max(samples),
            "reach": reach, "sense": sense}


def measured(command):
    """Seconds from start to end, and MiB of resident memory at the most."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} ended with {child.returncode}")
    return seconds, usage.ru_maxrss / 1024


def graph():
    """The graph alone, through a real pipeline file with empty bodies."""
    return json.loads(subprocess.run([f"{BUILD}/graph_bench", "--json"], check=True, stdout=subprocess.PIPE).stdout)["rows"]


def memory():
    """Start-up time and resident memory of the command on the sixteen-stream file, against a bare LibTorch program."""
    bare, ours = [f"{BUILD}/bare_torch"], [f"{BUILD}/lanewise", "check", "configs/flights16.json"]
    measured(bare), measured(ours)  # once for the disk
    pairs = [(measured(bare), measured(ours)) for _ in range(15)]
    ms = lambda pick: [1000 * pick(b[0], o[0]) for b, o in pairs]
    mib = lambda pick: [pick(b[1], o[1]) for b, o in pairs]
    return [
        row("memory.bare_start_ms", "ms", ms(lambda b, o: b)),
        row("memory.start_ms", "ms", ms(lambda b, o: o)),
        row("memory.start_added_ms", "ms", ms(lambda b, o: o - b), 50, "<="),
        row("memory.start_ratio", "", [o[0] / b[0] for b, o in pairs]),
        row("memory.bare_rss_mib", "MiB", mib(lambda b, o: b)),
        row("memory.start_rss_mib", "MiB", mib(lambda b, o: o)),
        row("memory.start_added_mib", "MiB", mib(lambda b, o: o - b), 64, "<="),
    ]


def checkpoint():
    """Steps of a training with 400 MB of state (weights and AdamW's two moments), while it saves back to back and while it
    saves nothing. A save waits for the one before; a step that has to is one of the longest."""
    node = lambda id, type, repeat=None, **more: {"id": id, "type": type, **({"repeat": repeat} if repeat else {}), **more}
    pipeline = {
        "name": "big", "models": {"net": {"type": "mlp", "hidden": [4096, 4096, 4096]}},
        "nodes": [
            node("gen", "ar1", 4, params={"features": 8}),
            node("pair", "pair", 2, **{"in": [{"from": "gen", "take": 2}]}),
            node("lane", "compute", 2, device="cpu:*", params={"model": "net"},
                 **{"in": [{"from": "pair", "take": 1}, {"from": "opt", "initial": 1}]}),
            node("reduce", "allreduce", **{"in": [{"from": "lane"}]}),
            node("opt", "optimizer", params={"name": "adamw"}, **{"in": [{"from": "reduce"}]})],
        "run": {"steps": 40}}

    def steps(folder, saving):
        pipeline["run"]["checkpoint"] = {"every": 4, "keep": 1} if saving else {}
        with open(f"{folder}/big.json", "w") as f:
            json.dump(pipeline, f)
        out = f"{folder}/{'saving' if saving else 'quiet'}"
        measured([f"{BUILD}/lanewise", "run", f"{folder}/big.json", "--quiet", "--out", out])
        with open(f"{out}/timings.jsonl") as f:
            ends = [json.loads(line)["seconds"] for line in f]
        with open(f"{out}/report.json") as f:
            saves = json.load(f)["checkpoints"]
        shutil.rmtree(out)
        return [1000 * (b - a) for a, b in zip(ends[3:], ends[4:])], saves  # the first steps touch the memory

    rows = {name: [] for name in ("step_ms", "saving_step_ms", "mean_ratio", "longest_ratio", "snapshot_ms", "save_ms")}
    for _ in range(3):
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            quiet, _ = steps(folder, False)
            saving, saves = steps(folder, True)
        rows["step_ms"] += quiet
        rows["saving_step_ms"] += saving
        rows["mean_ratio"].append(statistics.mean(saving) / statistics.mean(quiet))
        rows["longest_ratio"].append(max(saving) / max(quiet))
        rows["snapshot_ms"].append(1000 * saves["snapshot_seconds"] / saves["saved"])
        rows["save_ms"].append(1000 * saves["mean_seconds"])
    return [row(f"checkpoint.{name}", "ms" if name.endswith("_ms") else "", samples) for name, samples in rows.items()]


def same_work(steps, what, losses):
    """Stops where contenders' losses tell that they did not do the same work. `losses`: by contender, lanewise first."""
    names, values = list(losses), list(losses.values())
    worst = max(abs(v - values[0]) / abs(values[0]) for v in values)
    print(f"losses after {steps} steps, {what}: " + ", ".join(f"{n} {v:.6g}" for n, v in zip(names, values)) +
          f"; at most {worst:.1e} apart")
    if worst > 1e-3:
        sys.exit("the contenders did not do the same work: their losses differ")


def trained(out, command, steps, warm):
    """Microseconds a step behind the first `warm`, and the mean loss of the last 100, of a run to `out`."""
    measured([*command, "--quiet", "--out", out])
    with open(f"{out}/timings.jsonl") as f:
        ends = [json.loads(line)["seconds"] for line in f]
    with open(f"{out}/metrics.jsonl") as f:
        losses = [json.loads(line)["loss"] for line in f]
    shutil.rmtree(out)
    return 1e6 * (ends[-1] - ends[warm - 1]) / (steps - warm), statistics.mean(losses[-100:])


def told(command):
    """The same of a contender that tells them."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    last = json.loads(done.stdout.splitlines()[-1])
    return last["us"], last["loss"]


def train():
    """The mlp 8-128-128-1 on sixteen streams, in several processes, against PyTorch's DDP over Gloo in as many: the same
    files, initial weights, optimizer and steps."""
    steps, warm = 1000, 200
    torchrun = [".venv/bin/torchrun", "--standalone", "--nproc-per-node"]

    def lanewise(folder, processes, reduction):
        command = [*torchrun, str(processes), "--no-python", f"{BUILD}/lanewise", "run", f"{folder}/mlp.json"]
        return trained(f"{folder}/run", [*command, "--set", f"run.reduction={reduction}", "--set", "run.fuse=off"], steps, warm)

    def ddp(folder, processes):
        return told([*torchrun, str(processes), "tools/benchmarks/ddp.py", folder, "mlp", str(steps), str(warm)])

    rows = []
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        subprocess.run([".venv/bin/python", "tools/benchmarks/files.py", folder, str(steps)], check=True)
        for processes in (2, 4):
            turns = [(lanewise(folder, processes, "reference"), lanewise(folder, processes, "fast"), ddp(folder, processes))
                     for _ in range(3)]
            for r, f, d in turns:
                same_work(steps, f"{processes} processes", {"lanewise": r[1], "lanewise, fast": f[1], "DDP": d[1]})
            name = f"train.mlp_unfused_vs_ddp{processes}"
            rows += [row(f"{name}", "", [d[0] / r[0] for r, _, d in turns], 3, ">="),
                     row(f"{name}_fast", "", [d[0] / f[0] for _, f, d in turns]),
                     row(f"{name}_us", "us", [r[0] for r, _, _ in turns]),
                     row(f"{name}_fast_us", "us", [f[0] for _, f, _ in turns]),
                     row(f"{name}_ddp_us", "us", [d[0] for _, _, d in turns])]
    return rows


STEPS = {"mlp": (3000, 500), "gru": (600, 100)}  # of a contest, and those of them before the clock starts


@contextlib.contextmanager
def contest(kind):
    """A folder with what contenders train on; how lanewise does, by run.fuse and run.reduction; and how another one does. Each
    gives microseconds a step and the mean loss of the last 100."""
    steps, warm = STEPS[kind]
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        subprocess.run([".venv/bin/python", "tools/benchmarks/files.py", folder, str(steps)], check=True)

        def lanewise(fuse, reduction="deterministic"):
            command = [f"{BUILD}/lanewise", "run", f"{folder}/{kind}.json", "--pin"]
            for one in ("run.threads=2", f"run.reduction={reduction}", f"run.fuse={fuse}"):
                command += ["--set", one]
            return trained(f"{folder}/run", command, steps, warm)

        def contender(start, *more):
            return told([*start, folder, kind, *more, str(steps), str(warm)])

        yield lanewise, contender


def turns_of(kind, contenders):
    """Each contender three times, in turn."""
    turns = [{name: measure() for name, measure in contenders.items()} for _ in range(3)]
    for turn in turns:
        same_work(STEPS[kind][0], kind, {name: loss for name, (_, loss) in turn.items()})
    return turns


def handwritten():
    """Lanes one by one and fused, against loops written by hand in C++ with LibTorch on two threads: eight batches of two, and
    the faster of one batch of sixteen and two of eight. Their samples are in memory, those of lanewise come through its graph."""
    rows = []
    for name, kind, ours, batches, most in (("mlp", "mlp", ("off", "reference"), (8,), 1.1), ("mlp_fused", "mlp", (2,), (1, 2), 1.15),
                                            ("gru_fused", "gru", (2,), (1, 2), 1.15)):
        with contest(kind) as (lanewise, contender):
            turns = turns_of(kind, {
                "lanewise": lambda: lanewise(*ours),
                "hand": lambda: min(contender([f"{BUILD}/handwritten"], str(count)) for count in batches)})
        rows += [row(f"hand.{name}", "", [turn["lanewise"][0] / turn["hand"][0] for turn in turns], most, "<="),
                 row(f"hand.{name}_us", "us", [turn["hand"][0] for turn in turns])]
    return rows


def fused():
    """The mlp 8-128-128-1, and a gru 8-64 over 32 time steps, on sixteen streams in one process: fused lanes against lanes one
    by one, against a loop over one batch of sixteen in PyTorch (eager, the faster of one thread and two; torch.compile) and in JAX
    (the whole step compiled), and against DDP."""
    rows = []
    for kind, reach in (("mlp", {"torch": 3, "jax": 1.1, "ddp2": 8}), ("gru", {"torch": 3.5, "jax": 1.4, "ddp2": 5})):
        with contest(kind) as (lanewise, contender):
            python = [".venv/bin/python"]
            pytorch = lambda how, threads: contender([*python, "tools/benchmarks/torch_loop.py"], how, threads)
            contenders = {
                "fused": lambda: lanewise(2),
                "unfused": lambda: lanewise("off"),
                "torch": lambda: min(pytorch("eager", threads) for threads in ("1", "2")),
                "compiled": lambda: pytorch("compile", "1"),
                "jax": lambda: contender([*python, "tools/benchmarks/jax_loop.py"]),
                "ddp2": lambda: contender([".venv/bin/torchrun", "--standalone", "--nproc-per-node", "2", "tools/benchmarks/ddp.py"])}
            turns = turns_of(kind, contenders)
        over_fused = lambda name: [turn[name][0] / turn["fused"][0] for turn in turns]
        rows += [row(f"train.{kind}_vs_{name}", "", over_fused(name), least, ">=") for name, least in reach.items()]
        rows += [row(f"train.{kind}_vs_compiled", "", over_fused("compiled")),
                 row(f"train.{kind}_fused_over_unfused", "", over_fused("unfused"))]
        rows += [row(f"train.{kind}_{name}_us", "us", [turn[name][0] for turn in turns]) for name in contenders]
    return rows


def process():
    """Sixteen Python processes as sources of a training (a linear model), against a queue of torch.multiprocessing each; and
    how much of a core lanewise takes while it waits for them."""
    python, program = f"{os.getcwd()}/.venv/bin/python", f"{os.getcwd()}/tools/benchmarks/generators.py"
    node = lambda id, type, repeat=None, **more: {"id": id, "type": type, **({"repeat": repeat} if repeat else {}), **more}

    def start(folder, steps, features, pause=0):
        pipeline = {
            "name": "process", "models": {"net": {"type": "linear"}},
            "nodes": [
                node("gen", "process", 16, params={"command": [python, program, "serve", str(features), str(pause)],
                                                   "x": [features], "y": [1]}),
                node("pair", "pair", 8, **{"in": [{"from": "gen", "take": 2}]}),
                node("lane", "compute", 8, device="cpu:*", params={"model": "net"},
                     **{"in": [{"from": "pair", "take": 1}, {"from": "opt", "initial": 1}]}),
                node("reduce", "allreduce", **{"in": [{"from": "lane"}]}),
                node("opt", "optimizer", params={"name": "sgd", "lr": 1e-9}, **{"in": [{"from": "reduce"}]})],
            "run": {"steps": steps}}
        with open(f"{folder}/process.json", "w") as f:
            json.dump(pipeline, f)
        return subprocess.Popen([f"{BUILD}/lanewise", "run", f"{folder}/process.json", "--quiet", "--out", f"{folder}/run"],
                                stdout=subprocess.DEVNULL)

    def rate(steps, warm, features):
        """Samples a second behind the first `warm` steps."""
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            if start(folder, steps, features).wait() != 0:
                sys.exit("bench: the training of generators failed")
            with open(f"{folder}/run/timings.jsonl") as f:
                ends = [json.loads(line)["seconds"] for line in f]
        return 16 * (steps - warm) / (ends[-1] - ends[warm - 1])

    def waiting():
        """Cores that lanewise uses while sixteen generators are silent."""
        def used(pid):
            with open(f"/proc/{pid}/stat") as f:
                return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            child = start(folder, 100, 8, pause=1000)
            time.sleep(5)
            before = used(child.pid)
            time.sleep(3)
            cores = (used(child.pid) - before) / 3
            child.kill()
            child.wait()
        return cores

    def queues():
        return float(subprocess.run([python, program, "queue", "16", "100"], check=True, stdout=subprocess.PIPE).stdout)

    turns = [(rate(6000, 1000, 8), queues()) for _ in range(3)]
    large = [rate(200, 40, 2**18 - 1) * 2**20 / 1e9 for _ in range(3)]
    return [row("process.rate", "/s", [ours for ours, _ in turns], 20000, ">="),
            row("process.queue_rate", "/s", [theirs for _, theirs in turns]),
            row("process.rate_over_queue", "", [ours / theirs for ours, theirs in turns]),
            row("process.mib_samples", "GB/s", large, 1, ">="),
            row("process.waiting_cores", "", [waiting() for _ in range(3)], 0.02, "<=")]


GROUPS = {"graph": graph, "memory": memory, "checkpoint": checkpoint, "handwritten": handwritten, "train": train, "fused": fused, "process": process}


def machine():
    with open("/proc/cpuinfo") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return {"processor": models[0] if models else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release()}


def verdict(r):
    if r["reach"] is None:
        return ""
    met = r["median"] <= r["reach"] if r["sense"] == "<=" else r["median"] >= r["reach"]
    return f"{r['sense']} {r['reach']:g}: {'met' if met else 'MISSED'}"


def main():
    parser = argparse.ArgumentParser(prog="tools/bench", description="Measures lanewise. The median is compared with `reach`.")
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="of " + ", ".join(GROUPS) + "; all when none is named")
    parser.add_argument("--json", metavar="FILE", help="writes the rows to FILE")
    arguments = parser.parse_args()
    for name in arguments.groups:
        if name not in GROUPS:
            parser.error(f"there is no group '{name}'; there are {', '.join(GROUPS)}")
    rows = [r for name in arguments.groups or GROUPS for r in GROUPS[name]()]
    print(f"{'':28}{'min':>10}{'median':>10}{'max':>10}")
    for r in rows:
        print(f"{r['name']:28}{r['min']:10.4g}{r['median']:10.4g}{r['max']:10.4g} {r['unit']:4} {verdict(r)}")
    if arguments.json:
        with open(arguments.json, "w") as f:
            json.dump({"rows": rows, "machine": machine()}, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
