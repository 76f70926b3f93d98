"""What a maintainer asks for: versions, machine, compiler, environment variables, configs that were changed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import Any

import torch

PACKAGES = ("numpy", "transformers", "diffusers", "timm", "torchvision", "torchaudio", "torchao", "lightning")


def packages() -> dict[str, str]:
    """Versions of well-known packages that the program has imported."""
    return {n: v for n in PACKAGES if n in sys.modules and (v := version_of(n))}


def collect() -> dict[str, Any]:
    """Fields of `model.diagnosis.Environment`. Never raises."""
    return {
        "torch": torch.__version__,
        "torch_git": str(getattr(torch.version, "git_version", "")),
        "python": sys.version.split()[0],
        "os": platform.platform(),
        "cpu": cpu(),
        "gpu": gpu(),
        "driver": str(getattr(torch.version, "cuda", "") or getattr(torch.version, "hip", "") or ""),
        "compiler": compiler(),
        "triton": version_of("triton"),
        "threads": torch.get_num_threads(),
    }


def cpu() -> str:
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    name = line.partition(":")[2].strip()
                    break
    except OSError:
        pass
    try:
        vector = torch.backends.cpu.get_cpu_capability()
    except Exception:
        vector = ""
    return f"{name}, {os.cpu_count()} cores, {vector}".rstrip(", ")


def gpu() -> str:
    """From the driver's own tool: asking torch would initialise CUDA, which does not survive a fork."""
    if not shutil.which("nvidia-smi"):
        return ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return first_line(query)


def compiler() -> str:
    command = os.environ.get("CXX") or "g++"
    return first_line([command, "--version"]) if shutil.which(command) else ""


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def version_of(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
