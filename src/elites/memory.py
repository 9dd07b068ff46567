"""Available memory."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import jax

from elites.errors import ElitesError

GROUPS = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Free memory of the device of JAX's arrays."""
    device = jax.local_devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()):
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    table = Path("/proc/meminfo")
    if table.exists() and (match := re.search(r"MemAvailable:\s+(\d+) kB", table.read_text())):
        free = 1024 * int(match[1])
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([free, *free_in_cgroups()]))


def require_bytes(count: int, size: int, what: str, items: str) -> None:
    """Raises an error if `count` items of `size` bytes do not fit into memory, with the number that fits."""
    free = available_bytes()
    if count * size > free:
        fits = f"{free // size:,} {items} fit" if free >= size else "reduce the sizes"
        raise ElitesError(
            f"{what} {count * size / 1e9:,.1f} GB, but only {free / 1e9:.1f} GB are free; {fits}"
        )


def free_in_cgroups(table: Path = Path("/proc/self/cgroup"), groups: Path = GROUPS) -> Iterator[int]:
    """Free memory within each limit of this process, such as that of a container or a batch job."""
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
                cached = re.search(
                    r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE
                )
            except (OSError, ValueError):  # no such file, or no limit ("max")
                pass
            else:
                # Inactive cached files count as used, but are dropped when memory is short.
                yield numbers[0] - numbers[1] + (int(cached[1]) if cached else 0)
            if folder == top:
                break
