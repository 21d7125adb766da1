"""Uses much of the interpreter and of the libraries that come with it, so that memory is asked for in
many ways."""

import ast
import collections
import csv
import ctypes
import datetime
import decimal
import hashlib
import io
import json
import os
import pickle
import re
import sqlite3
import subprocess
import tempfile
import threading
import xml.etree.ElementTree
import zlib

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


def texts(n):
    rows = [{"number": i, "text": "x" * (i % 700), "parts": list(range(i % 50))} for i in range(n)]
    assert json.loads(json.dumps(rows)) == rows
    assert pickle.loads(pickle.dumps(rows)) == rows
    assert len(re.findall(r"(x{3,5})(?=x)", json.dumps(rows))) > 10
    out = io.StringIO()
    csv.writer(out).writerows(row.values() for row in rows)
    assert len(list(csv.reader(io.StringIO(out.getvalue())))) == n
    return rows


def tables(n):
    base = sqlite3.connect(":memory:")
    base.create_function("twice", 1, lambda x: 2 * x)
    base.execute("create table t (a integer primary key, b text)")
    base.executemany("insert into t values (?, ?)", ((i, "y" * (i % 900)) for i in range(n)))
    base.execute("create index i on t (b)")
    rows = base.execute("select twice(a), b from t order by b desc, a").fetchall()
    assert len(rows) == n
    return rows


def trees(depth):
    source = "(" * depth + "1" + " + 2)" * depth
    compile(ast.parse(source), "here", "exec")
    text = "<a b='c'>" * depth + "text" + "</a>" * depth
    return xml.etree.ElementTree.fromstring(text)


def called_back(n):
    numbers = (ctypes.c_int * n)(*reversed(range(n)))
    order = []

    def compare(one, other):
        order.append(bytearray(600))
        return one[0] - other[0]

    ctypes.CDLL(None).qsort(numbers, n, ctypes.sizeof(ctypes.c_int), CALLBACK(compare))
    assert list(numbers) == list(range(n))
    return order


def numbers(n):
    context = decimal.Context(prec=2000)
    root = context.sqrt(decimal.Decimal(2))
    return [root, 7**n, str(datetime.datetime(2020, 1, 1)), collections.Counter(range(n))]


def bytes_of(n):
    block = os.urandom(1000) * n
    assert zlib.decompress(zlib.compress(block)) == block
    with tempfile.TemporaryFile() as file:
        file.write(block)
    return hashlib.sha256(block).hexdigest()


def failing(depth):
    try:
        if depth:
            failing(depth - 1)
        raise ValueError("x" * 600)
    except ValueError as error:
        return repr(error)


def everything():
    return [texts(60), tables(200), trees(15), called_back(20), numbers(3000), bytes_of(50), failing(10)]


kept = [everything()]
threads = [threading.Thread(target=lambda: kept.append(everything())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
subprocess.run(["true"], check=True)
assert len(kept) == 5
