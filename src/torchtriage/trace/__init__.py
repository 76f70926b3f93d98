"""TORCH_TRACE logs: read, modelled, explained and compared, without torch."""

from torchtriage.trace.load import Trace, read_trace
from torchtriage.trace.sources import NotATrace

__all__ = ["NotATrace", "Trace", "read_trace"]
