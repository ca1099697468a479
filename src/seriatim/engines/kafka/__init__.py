"""The event log in Kafka. librdkafka works in threads of its own; their reports reach the event loop in batches."""
