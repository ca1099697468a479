"""PLANE 2: an ack means stored and published. Pipelines, stable prefix, publishing, reconciling, receipts."""
