"""Writes what tools/bench trains on: sixteen CSV files of first-order processes, and for each model its initial weights and
pipeline: mlp.json, gru.json."""
import json
import math
import sys

import torch
from safetensors.numpy import save_file

import contender

MODELS = {"mlp": {"type": "mlp", "hidden": [128, 128]}, "gru": {"type": "gru", "hidden": 64}}


def pipeline(kind, steps):
    window = {"id": "win", "repeat": 16, "type": "window", "params": {"length": contender.WINDOW},
              "in": [{"from": "gen", "take": 1}]}
    return {
        "name": kind, "models": {"net": MODELS[kind] | {"init": f"{kind}.safetensors"}},
        "nodes": [
            {"id": "gen", "repeat": 16, "type": "csv", "each": {"path": [f"{s}.csv" for s in range(16)]},
             "params": {"features": [f"x{i}" for i in range(8)], "target": ["y"], "horizon": 0}},
            *([window] if kind == "gru" else []),
            {"id": "pair", "repeat": 8, "type": "pair",
             "in": [{"from": "win" if kind == "gru" else "gen", "take": 2, "capacity": 4}]},
            {"id": "lane", "repeat": 8, "type": "compute", "device": "cpu:*", "params": {"model": "net"},
             "in": [{"from": "pair", "take": 1}, {"from": "opt", "initial": 1}]},
            {"id": "reduce", "type": "allreduce", "in": [{"from": "lane"}]},
            {"id": "opt", "type": "optimizer", "in": [{"from": "reduce"}], "params": {"name": "sgd", "lr": 0.01}}],
        "run": {"steps": steps, "threads": 1}}


def main():
    folder, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(7)
    for stream in range(16):
        x, rows = torch.zeros(8), []
        for _ in range(steps + contender.WINDOW):
            x = 0.9 * x + 0.44 * torch.randn(8)
            rows.append([*x.tolist(), math.sin(3 * x.mean().item())])
        with open(f"{folder}/{stream}.csv", "w") as f:
            f.write(",".join([*(f"x{i}" for i in range(8)), "y"]) + "\n")
            f.writelines(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows)
    for kind in MODELS:
        save_file({name: p.numpy() for name, p in contender.network(kind).state_dict().items()}, f"{folder}/{kind}.safetensors")
        with open(f"{folder}/{kind}.json", "w") as f:
            json.dump(pipeline(kind, steps), f)


if __name__ == "__main__":
    main()
