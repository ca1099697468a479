"""RocksDB as we use it: changes are written first and synced apart, and an error is not taken for an end of rows.

`rocksdict` holds Python's lock while it writes and while it reads, but not while it syncs the log. So a batch is
written without a sync, on the event loop, where it costs microseconds, and synced by a thread that may wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from seriatim.domain import limits
from seriatim.domain.errors import STORE_FAILING, UNREADABLE, RowUnreadable, ServiceUnavailable

Changes = Mapping[bytes, bytes | None]  # None: the row goes


class DiskError(Exception):
    """The store cannot be opened, written or synced. Nothing goes on before it was opened again."""


class Stalled(Exception):
    """The store is behind with moving rows to table files. Nothing was written; try again soon."""


class ReadableDisk:
    """The reading half of a RocksDB, however it was opened."""

    def __init__(self, db: Rdict) -> None:
        self._db: Rdict | None = db

    def get(self, key: bytes) -> bytes | None:
        db = self._open_db()
        try:
            value = db.get(key)
        except Exception as error:
            raise _unreadable(error) from error
        assert value is None or isinstance(value, bytes), "raw mode knows only bytes"
        return value

    def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The row of each key, in one call: on the way of a send every microsecond counts."""
        db = self._open_db()
        try:
            found = db.get(keys if isinstance(keys, list) else list(keys))
        except Exception as error:
            raise _unreadable(error) from error
        assert isinstance(found, list), "a list of keys is answered with a list of rows"
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start` up to, but not with, `end`. Use it up or drop it before the next await."""
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        db = self._open_db()
        try:
            found = db.iter(bound)
            found.seek(start)
            while found.valid():
                yield found.key(), found.value()
                found.next()
            # A damaged table ends an iteration like any other end, except for this.
            found.status()
        except Exception as error:
            raise _unreadable(error) from error

    def scan_down(self, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows from `start`, that one included, downwards, as long as they begin with `prefix`."""
        db = self._open_db()
        try:
            found = db.iter()
            found.seek_for_prev(start)
            while found.valid() and found.key().startswith(prefix):
                yield found.key(), found.value()
                found.prev()
            found.status()
        except Exception as error:
            raise _unreadable(error) from error

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except Exception as error:
                # What was acknowledged is in the log, whatever the last flush says.
                raise DiskError(str(error)) from error

    def _open_db(self) -> Rdict:
        if self._db is None:
            raise ServiceUnavailable(STORE_FAILING, log_reason="the data folder is not open at this moment")
        return self._db


class Disk(ReadableDisk):
    """One RocksDB, as it was written last, synced or not. `sync` and `reopen` belong to a thread, the rest to the loop.

    A caller that reads here must know what is not synced yet: `ReadSnapshot` and `WriteTransaction` do.
    Rows found by their key are kept: a send asks for the same few again and again, at 3 us each.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        super().__init__(_open(path, create=create))
        self._path = path
        self._found: dict[bytes, bytes] = {}  # as written last, always; oldest first

    def get(self, key: bytes) -> bytes | None:
        value = self._found.get(key)
        return self._keep(key, super().get(key)) if value is None else value

    def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._found.keys().isdisjoint(keys):
            return [self.get(key) for key in keys]
        found = super().get_all(keys)
        if any(found):  # a send asks whether its key is there, and it nearly never is
            for key, row in zip(keys, found, strict=True):
                self._keep(key, row)
        return found

    def write(self, changes: Changes) -> None:
        """All of it or, after a crash, nothing; for good only after the next `sync`."""
        db = self._open_db()
        batch = WriteBatch(raw_mode=True)
        if None in changes.values():
            for key, value in changes.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
        else:
            any(map(batch.put, changes.keys(), changes.values()))  # all of them: `put` returns nothing
        try:
            db.write(batch, _WITHOUT_SYNC)
        except Exception as error:
            if str(error).startswith("Result incomplete"):
                raise Stalled(str(error)) from error
            raise DiskError(str(error)) from error
        for key in self._found.keys() & changes.keys():
            value = changes[key]
            if value is None:
                del self._found[key]
            else:
                self._found[key] = value

    def sync(self) -> None:
        """Returns once all that was written before survives the loss of power. It may take long."""
        try:
            self._open_db().flush_wal(True)
        except Exception as error:
            raise DiskError(str(error)) from error

    def reopen(self) -> None:
        """After a `DiskError` the store refuses every write; a new one replays the log and has what survived."""
        with suppress(DiskError):  # it is broken: of course it complains
            self.close()
        self._db = _open(self._path, create=False)

    def close(self) -> None:
        self._found = {}  # nothing is found in a store that is not open
        super().close()

    def compact(self) -> None:
        """Moves all rows to new table files, without those that were overwritten or deleted. It may take minutes."""
        whole = CompactOptions()
        whole.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        try:
            self._open_db().compact_range(None, None, whole)
        except Exception as error:
            raise DiskError(str(error)) from error

    def _keep(self, key: bytes, value: bytes | None) -> bytes | None:
        if value is not None:
            if len(self._found) >= limits.STORE_ROWS_KEPT_MAX:
                del self._found[next(iter(self._found))]
            self._found[key] = value
        return value


_WITHOUT_SYNC = WriteOptions()
_WITHOUT_SYNC.sync = False
_WITHOUT_SYNC.no_slowdown = True  # an error instead of a wait: the wait would hold up every thread of this process


def _open(path: Path, *, create: bool) -> Rdict:
    options = store_options()
    options.create_if_missing(create)
    options.set_error_if_exists(create)
    try:
        return Rdict(str(path), options)
    except Exception as error:
        raise DiskError(str(error)) from error


def store_options() -> Options:
    """What a reader of the files must agree with their writer about, and what makes both fast."""
    options = Options(raw_mode=True)
    # A record cut short by a crash was never acknowledged. Any other damage to the log may have been: refuse it, where
    # the default would drop all that follows without a word.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(limits.STORE_MEMTABLE_BYTES)
    options.set_memtable_prefix_bloom_ratio(limits.STORE_BLOOM_RATIO)
    options.set_memtable_whole_key_filtering(True)
    options.set_max_total_wal_size(limits.STORE_LOG_BYTES_MAX)
    options.set_keep_log_file_num(4)
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(limits.STORE_CACHE_BYTES))
    tables.set_bloom_filter(10, False)  # most keys asked for on the way of a send are not there
    options.set_block_based_table_factory(tables)
    return options


def _unreadable(error: Exception) -> ServiceUnavailable:
    if isinstance(error, ServiceUnavailable):
        return error
    return RowUnreadable(UNREADABLE, log_reason=f"the data folder cannot be read: {error}")
