"""Forks a child that leaves fifty buffers of 100,001 bytes and waits to be told to end."""

import os
import time

kept = []


def in_child():
    kept.append(bytearray(100_000))


def child():
    for _ in range(50):
        in_child()
    # Long enough for batches to end while it holds them.
    time.sleep(1)


def main():
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    os.waitpid(pid, 0)


main()
