"""A model of tools/bench by JAX over one batch of all sixteen streams: the whole step, from taking the samples to the new
weights, is one compiled function whose weights stay in place. Prints microseconds a step and the mean loss of the last 100
steps as JSON."""
import functools
import json
import sys
import time

import jax
import jax.numpy as jnp

import contender

HIDDEN = 64  # of the gru


def gru(params, x):
    """[16, WINDOW, 8] -> [16, 1]; the equations of torch.nn.GRU."""
    inputs = x @ params["rnn.weight_ih_l0"].T + params["rnn.bias_ih_l0"]

    def cell(h, i):
        state = h @ params["rnn.weight_hh_l0"].T + params["rnn.bias_hh_l0"]
        (ri, zi, ni), (rh, zh, nh) = jnp.split(i, 3, axis=1), jnp.split(state, 3, axis=1)
        r, z = jax.nn.sigmoid(ri + rh), jax.nn.sigmoid(zi + zh)
        n = jnp.tanh(ni + r * nh)
        return (1 - z) * n + z * h, None

    h, _ = jax.lax.scan(cell, jnp.zeros((x.shape[0], HIDDEN)), inputs.swapaxes(0, 1))
    return h @ params["head.weight"].T + params["head.bias"]


def mlp(params, x):
    for layer in ("0", "2", "4"):
        x = x @ params[f"{layer}.weight"].T + params[f"{layer}.bias"]
        x = x if layer == "4" else jax.nn.relu(x)
    return x


def batch_of(kind, data, step):
    """x and y of a step, as contender.batch_of; `step` is traced."""
    rows = jax.lax.dynamic_slice_in_dim(data, step, contender.WINDOW if kind == "gru" else 1, axis=1)
    return (rows[:, :, :8] if kind == "gru" else rows[:, 0, :8]), rows[:, -1, 8:]


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train_step(kind, params, data, step):
    x, y = batch_of(kind, data, step)
    model = gru if kind == "gru" else mlp
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((model(p, x) - y) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss


def main():
    folder, kind, steps, warm = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])
    net, data = contender.load(folder, kind, range(16))
    params = {name: jnp.array(p.numpy()) for name, p in net.state_dict().items()}
    data, losses = jnp.array(data.numpy()), []
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(params)
            started = time.perf_counter()
        params, loss = train_step(kind, params, data, step)
        losses.append(loss)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - started
    print(json.dumps({"us": 1e6 * seconds / (steps - warm), "loss": float(jnp.stack(losses[-100:]).mean())}))


if __name__ == "__main__":
    main()
