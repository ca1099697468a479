"""The seriatim command: one file per command group."""
