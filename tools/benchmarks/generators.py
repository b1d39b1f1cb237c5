"""What the group `process` of tools/bench runs.

    generators.py serve FEATURES [PAUSE]       a generator of lanewise's: x of so many floats, y of one; seconds a sample
    generators.py queue PROCESSES COUNT        samples of 9 floats through one torch.multiprocessing.Queue a process, as a
                                               training loop takes them, one of each in turn; prints samples a second
"""
import sys
import time
from pathlib import Path

import numpy as np


def serve(features, pause):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
    import lanewise

    def sim(seed, stream):
        x, y = np.random.default_rng(seed).standard_normal(features, dtype=np.float32), np.zeros(1, np.float32)
        while True:
            if pause:
                time.sleep(pause)
            yield x, y

    lanewise.serve(sim)


def put(queue, seed):
    import torch

    torch.set_num_threads(1)
    sample = torch.from_numpy(np.random.default_rng(seed).standard_normal(9, dtype=np.float32))
    while True:
        queue.put(sample.clone())


def queue(processes, count):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queues = [context.Queue(maxsize=64) for _ in range(processes)]
    workers = [context.Process(target=put, args=(q, i), daemon=True) for i, q in enumerate(queues)]
    for worker in workers:
        worker.start()
    for q in queues:  # all have begun
        q.get()
    started = time.perf_counter()
    for _ in range(count):
        for q in queues:
            q.get()
    print(processes * count / (time.perf_counter() - started))
    for worker in workers:
        worker.kill()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0)
    else:
        queue(int(sys.argv[2]), int(sys.argv[3]))
