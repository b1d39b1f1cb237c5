"""The mlp of tools/bench `train` by PyTorch's DistributedDataParallel over Gloo, one batch of its streams a process. Started
by torchrun. Prints, from rank 0, microseconds a step and the mean loss of the last 100 steps as JSON."""
import csv
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from safetensors.numpy import load_file
from torch.nn.parallel import DistributedDataParallel


def main():
    folder, steps, warm = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    tables = []
    for stream in range(16 * rank // size, 16 * (rank + 1) // size):
        with open(f"{folder}/{stream}.csv") as f:
            tables.append([[float(v) for v in row] for row in list(csv.reader(f))[1:]])
    data = torch.tensor(tables)  # [streams, steps, 9]
    net = torch.nn.Sequential(torch.nn.Linear(8, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(),
                              torch.nn.Linear(128, 1))
    net.load_state_dict({name: torch.from_numpy(p) for name, p in load_file(f"{folder}/init.safetensors").items()})
    net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        if step == warm:
            started = time.perf_counter()
        row = data[:, step]
        loss = torch.nn.functional.mse_loss(net(row[:, :8]), row[:, 8:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    seconds = time.perf_counter() - started
    mean = torch.stack(losses[-100:]).mean()
    dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"us": 1e6 * seconds / (steps - warm), "loss": mean.item() / size}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
