"""Files that are written whole or not at all, and survive a loss of power."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Replaces the file in one step. `mode` is limited by the umask, and set before the first byte is written."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in the folder survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
