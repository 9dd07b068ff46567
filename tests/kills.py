"""Kills at renames: before one a file is complete but not in its place, after it both."""

import contextlib
import os
import shutil


@contextlib.contextmanager
def copies_at_renames(folder, into):
    """Copies a folder, as it is on the disk, before each rename in it: what a SIGKILL would leave there."""
    originals, copies = (os.replace, os.rename), []

    def copying(rename):
        def at(source, target, **options):
            if str(folder) in str(target):
                copies.append(shutil.copytree(folder, into / f"{len(copies) + 1:02d}"))
            return rename(source, target, **options)

        return at

    os.replace, os.rename = map(copying, originals)
    try:
        yield copies
    finally:
        os.replace, os.rename = originals
