"""fetch.py PORT N: N requests to a server on this machine, four at a time, each answered."""

import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

port, n = sys.argv[1:]


def fetch(_):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        assert answer.status == 200
        return answer.read()


with ThreadPoolExecutor(4) as threads:
    assert all(threads.map(fetch, range(int(n))))
