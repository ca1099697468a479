"""What several engines decide alike: pure rules, the consumer group, records of dead letters."""
