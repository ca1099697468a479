"""What an operator runs: invariant checks, repairs, and a look inside."""
