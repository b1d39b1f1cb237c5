"""A model of tools/bench by a plain loop of PyTorch over one batch of all sixteen streams, eager. Prints microseconds a step
and the mean loss of the last 100 steps as JSON."""
import json
import sys
import time

import torch

import contender


def main():
    folder, kind, steps, warm, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    torch.set_num_threads(threads)
    net, data = contender.load(folder, kind, range(16))
    us, loss = contender.train(net, kind, data, steps, warm, time.perf_counter)
    print(json.dumps({"us": us, "loss": loss.item()}))


if __name__ == "__main__":
    main()
