"""What the planes need from the world, one promise per sentence. Engines keep them; contract tests quote them.

Every call that leaves the process takes `timeout_s` and promises: it answers within that time or raises
`OutcomeUnknown`; `Throttled` and `Conflict` mean that nothing was applied.
"""
