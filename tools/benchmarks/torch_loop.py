"""A model of tools/bench by a plain loop of PyTorch over one batch of all sixteen streams, "eager" or by torch.compile. Prints microseconds a step
and the mean loss of the last 100 steps as JSON."""
import json
import sys
import time

import torch

import contender


def main():
    folder, kind, how, threads, steps, warm = *sys.argv[1:4], *map(int, sys.argv[4:7])
    torch.set_num_threads(threads)
    net, data = contender.load(folder, kind, range(16))
    if how == "compile":
        net = torch.compile(net)
    us, loss = contender.train(net, kind, data, steps, warm, time.perf_counter)
    print(json.dumps({"us": us, "loss": loss.item()}))


if __name__ == "__main__":
    main()
