"""What an operator runs: checks of invariants, repairs, traces of messages, tables and topics."""
