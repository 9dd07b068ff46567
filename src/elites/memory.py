"""How much memory a plan may take."""

import os
import re
from pathlib import Path

import jax


def available_bytes() -> int:
    """Memory that is free where JAX keeps its arrays."""
    device = jax.local_devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()):
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    table = Path("/proc/meminfo")
    if table.exists() and (found := re.search(r"MemAvailable:\s+(\d+) kB", table.read_text())):
        return 1024 * int(found[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
