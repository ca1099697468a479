"""What several engines share: pure rules over rows, the consumer group, dead letter records, atomic file writes."""
