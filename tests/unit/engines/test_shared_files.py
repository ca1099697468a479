"""A file is replaced whole, and a leftover of a crash does not prevent it."""

import stat
from pathlib import Path

import pytest

from seriatim.engines.shared.files import write_atomically


def test_the_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    (tmp_path / "key.new").write_bytes(b"of a crash")
    write_atomically(path, b"new", mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError("no space left")

    path = tmp_path / "key"
    path.write_bytes(b"old")
    monkeypatch.setattr("seriatim.engines.shared.files.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new", mode=0o600)
    assert path.read_bytes() == b"old"
