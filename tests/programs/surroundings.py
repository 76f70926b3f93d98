"""Prints, as JSON, what a program can see of how it was started. Used as a script, and by `python -m` beside it."""

import json
import os
import sys
from pathlib import Path

import torch


@torch.compile(backend="aot_eager")
def double(x):
    return x * 2


class Saved:
    pass


if __name__ == "__main__":
    import pickle

    seen = {
        "file": __file__,
        "name": __name__,
        "package": __package__,
        "spec": getattr(__spec__, "name", None),
        "doc": __doc__,
        "argv": sys.argv,
        "path": sys.path[0],
        "folder": os.getcwd(),
        "relative": Path("data.txt").read_text(),
        "main": sys.modules["__main__"].__dict__ is globals(),
        "pickle": type(pickle.loads(pickle.dumps(Saved()))).__module__,
        "future": hasattr(sys.modules["__main__"], "annotations"),
        "stdin": sys.stdin.read(),
        "orig_argv": sys.flags.dont_write_bytecode,
        "result": double(torch.ones(2)).tolist(),
    }
    print(json.dumps(seen), flush=True)
