"""torchtriage: finds out why a PyTorch program fails under torch.compile, and what makes it go away."""

__version__ = "0.1.0"
__all__ = ["__version__", "diagnose", "read_trace"]


def diagnose(target, /, *args, **kwargs):  # type: ignore[no-untyped-def]
    """Diagnose a model or function on the given inputs. See `torchtriage.api.diagnose`."""
    from torchtriage.api import diagnose as run  # torch is imported only when this is called

    return run(target, *args, **kwargs)


def read_trace(*args, **kwargs):  # type: ignore[no-untyped-def]
    """Read TORCH_TRACE logs into typed objects. See `torchtriage.trace.read_trace`."""
    from torchtriage.trace import read_trace as read

    return read(*args, **kwargs)
