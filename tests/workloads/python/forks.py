"""Forks a child that leaves fifty buffers of 100,001 bytes, makes the file in the argument and ends when it is gone."""

import os
import sys
import time

kept = []


def in_child():
    kept.append(bytearray(100_000))


def child():
    for _ in range(50):
        in_child()
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))
    while os.path.exists(sys.argv[1]):
        time.sleep(0.02)


def main():
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    os.waitpid(pid, 0)


main()
