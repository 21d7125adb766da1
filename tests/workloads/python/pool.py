"""A pool of four processes; per batch they leave 200 blocks of 700 bytes in the extension together.

The first argument is the folder of leaky_extension.
"""

import multiprocessing
import sys

from batch import serve

sys.path.insert(0, sys.argv[1])
import leaky_extension

SIZE = 700
TASKS = 20


def task(_):
    for _ in range(10):
        leaky_extension.leak(SIZE)


def main():
    n_batches = 0
    with multiprocessing.get_context("fork").Pool(4) as pool:

        def batch():
            nonlocal n_batches
            n_batches += 1
            pool.map(task, range(TASKS), chunksize=1)

        def account():
            n_blocks = n_batches * TASKS * 10
            return {"extension_leaks": (n_blocks, n_blocks * SIZE)}

        serve(batch, account)


if __name__ == "__main__":
    main()
