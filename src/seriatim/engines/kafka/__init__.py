"""The event log in Kafka. librdkafka works in threads of its own; what they say reaches the event loop in batches."""
