"""A model of tools/bench by PyTorch's DistributedDataParallel over Gloo, one batch of its streams a process. Started by
torchrun. Prints, from rank 0, microseconds a step and the mean loss of the last 100 steps as JSON."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import contender


def main():
    folder, kind, steps, warm = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net, data = contender.load(folder, kind, range(16 * rank // size, 16 * (rank + 1) // size))
    us, mean = contender.train(DistributedDataParallel(net), kind, data, steps, warm, time.perf_counter)
    dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"us": us, "loss": mean.item() / size}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # all is done: threads of PyTorch that the interpreter's end meets now and then abort the process


if __name__ == "__main__":
    main()
