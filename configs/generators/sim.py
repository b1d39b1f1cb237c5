import numpy as np
from lanewise import serve


def sim(seed, stream):  # one stream; another seed, another stream
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(8)
    while True:
        after = 0.9 * x + 0.4 * rng.standard_normal(8)
        yield x, after[:1]  # what is seen, and what is to be told from it
        x = after


serve(sim)
