"""The data folder: RocksDB, group commit, rows, snapshots."""
