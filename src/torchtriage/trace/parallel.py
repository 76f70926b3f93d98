"""Many logs read by several processes. Not multiprocessing: that would run the caller's script again in each.

Workers are plain Python processes that get sources on their standard input and give logs on their standard output.
What a worker did not give back, whatever the reason, the caller reads itself.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from torchtriage.trace.model import Log
from torchtriage.trace.sources import Source

COMMAND = "from torchtriage.trace.parallel import work; work()"
Job = tuple[int, Source]
Result = tuple[int, Log]


def read_together(
    sources: Sequence[Source], sizes: Sequence[int], scratch: str, workers: int, done: Callable[[int], None]
) -> dict[int, Log]:
    """Logs by the position of their source; those of failed workers are missing. `done` gets how many there are."""
    found: dict[int, Log] = {}
    if not sys.executable:
        return found
    results: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
    shares = [share for share in _shares(sources, sizes, workers) if share]
    threads = [threading.Thread(target=_run, args=(share, scratch, results), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    ended = 0
    while ended < len(threads):
        result = results.get()
        if result is None:
            ended += 1
            continue
        found[result[0]] = result[1]
        done(len(found))
    return found


def _shares(sources: Sequence[Source], sizes: Sequence[int], workers: int) -> list[list[Job]]:
    """Jobs for each worker, about the same number of bytes for each: the largest first, always to the least loaded."""
    shares: list[list[Job]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for number in sorted(range(len(sources)), key=lambda n: -sizes[n]):
        least = loads.index(min(loads))
        shares[least].append((number, sources[number]))
        loads[least] += sizes[number] + 1
    return shares


def _run(share: list[Job], scratch: str, results: queue.SimpleQueue[Result | None]) -> None:
    """One worker process, from start to end; its logs go into the queue, then None."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            pickle.dump((share, scratch), process.stdin)
            process.stdin.close()
            for result in _loaded(process.stdout):
                results.put(result)
    except (OSError, ValueError):
        pass
    finally:
        results.put(None)


def _loaded(stream: IO[bytes]) -> Iterator[Result]:
    """What our own worker wrote; it ends early where the worker died."""
    while True:
        try:
            yield pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return


def work() -> None:
    """The worker: jobs from standard input, logs to standard output."""
    from torchtriage.trace.load import read_log

    jobs, scratch = pickle.load(sys.stdin.buffer)
    for number, source in jobs:
        pickle.dump((number, read_log(source, scratch)), sys.stdout.buffer, protocol=5)
        sys.stdout.buffer.flush()
