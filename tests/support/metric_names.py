"""Every metric that docs/spec/data.md#metrics demands, by the name that Prometheus has for it, and those left out.

`DISTRIBUTED`: only a deployment on Kafka can show it. All metrics are in `runtime/telemetry/metric_table`.
"""

PRESENT = (
    "durability_counter_corruption_total",
    "counter_missing_errors_total",
    "durability_duplicate_sequence_total",
    "durability_dynamodb_available",
    "durability_kafka_available",
    "gateway_circuit_breaker_open",
    "gateway_slow_consumer_disconnects_total",
    "durability_persist_latency_seconds_bucket",
    "durability_transaction_conflict_rate",
    "fanout_kafka_consumer_lag",
    "fanout_kafka_consumer_lag_seconds",
    "fanout_delivery_skip_rate",
    "sequence_allocation_latency_seconds_bucket",
    "sequence_allocation_errors_total",
    "idempotency_hit_rate",
    "durability_idempotency_hit_rate",
    "sequence_gap_rate",
    "durability_kafka_produce_latency_seconds_bucket",
    "fanout_dlq_rate_total",
    "fanout_dlq_depth",
    "fanout_rebalances_total",
    "gateway_connection_timeout_total",
    "gateway_redis_connection_errors_total",
    "durability_dynamodb_throttle_count_total",
    "fanout_retry_count_total",
    "fanout_consumer_restarts_total",
    "gateway_redis_available",
    "gateway_instances_healthy",
    "gateway_connections_active",
    "gateway_connections_rate_total",
    "durability_messages_persisted_rate_total",
    "fanout_messages_delivered_rate_total",
    "client_resync_forced_rate_total",
    "kafka_lifecycle_publish_failures_total",
    "durability_events_republished_total",
    "durability_persist_out_of_order_total",
)

DISTRIBUTED = ("under_replicated_partitions",)

ABSENT = {
    "messages_per_chat_per_minute": "it would need a label for each chat: the log names the hot ones (`hot_chats`)",
}
