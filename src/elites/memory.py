"""How much memory a plan may take."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import jax

GROUPS = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that is free where JAX keeps its arrays."""
    device = jax.local_devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()):
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    table = Path("/proc/meminfo")
    if table.exists() and (found := re.search(r"MemAvailable:\s+(\d+) kB", table.read_text())):
        free = 1024 * int(found[1])
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([free, *left_by_groups()]))


def left_by_groups(table: Path = Path("/proc/self/cgroup"), groups: Path = GROUPS) -> Iterator[int]:
    """What is left of each limit on the memory of this process: of a container, or of a job's share."""
    for line in table.read_text().splitlines() if table.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used = groups, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit, used = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            try:
                numbers = [int((folder / name).read_text()) for name in (limit, used)]
                kept = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
            except (OSError, ValueError):  # there is none, or it says max
                pass
            else:
                # Files that were read long ago count as used, and are given up when memory is short.
                yield numbers[0] - numbers[1] + (int(kept[1]) if kept else 0)
            if folder == top:
                break
