"""A compiled step that is fine, and many ways for the program around it to end: `endings.py WAY`."""

import ctypes
import os
import sys
import threading
import time

import torch

WAY = sys.argv[1]

if WAY == "raise-before":
    raise ValueError("the data file is empty\nand this is more about it")
if WAY == "segv-before":
    ctypes.string_at(0)
if WAY == "exit-before":
    os._exit(4)
if WAY == "sys-exit-before":
    sys.exit("no data: give a folder")


@torch.compile(backend="aot_eager")
def step(x, table):
    if WAY in ("raise-in-region", "handled-in-region"):
        return x + table["scale"]  # a KeyError, compiled or not
    if WAY == "segv-in-region" and not torch.compiler.is_compiling():
        ctypes.string_at(0)
    return x * 2


@torch.compile(backend="aot_eager")
def never_called(x):
    return x


if WAY == "never-called":
    sys.exit()

for size in (2, 3):
    try:
        print(step(torch.ones(size), {}).sum().item())
    except KeyError:
        if WAY == "raise-in-region" and size == 3:
            raise

if WAY == "sys-exit-0":
    sys.exit(0)
if WAY == "sys-exit-3":
    sys.exit(3)
if WAY == "sys-exit-text":
    sys.exit("done, with a warning")
if WAY == "os-exit-0":
    os._exit(0)
if WAY == "os-exit-3":
    os._exit(3)
if WAY == "raise-after":
    raise RuntimeError("cannot write the checkpoint")
if WAY == "segv-after":
    ctypes.string_at(0)
if WAY == "thread":
    threading.Thread(target=time.sleep, args=(1000,)).start()  # keeps the program alive by itself
