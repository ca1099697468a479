"""Every metric of docs/spec/data.md#metrics, by the name that Prometheus has for it; and those that are not here.

`OURS` are those that we add; `DISTRIBUTED` those that only a deployment on engines of its own can show; `ENGINES` are
ours about such engines.
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

OURS = ("fanout_partitions_stalled",)

DISTRIBUTED = ("under_replicated_partitions",)

ENGINES = (
    "dynamodb_calls_total",
    "dynamodb_refusals_total",
    "dynamodb_retries_total",
    "kafka_records_passed_over_total",
    "redis_connections_total",
    "redis_dials_failed_total",
    "redis_calls_failed_total",
    "redis_parcels_malformed_total",
    "durability_allocations_behind_total",
    "rpc_ingest_processes",
    "rpc_streams_ended_total",
    "rpc_sends_unknown_total",
    "rpc_dials_failed_total",
    "rpc_batches_late_total",
    "rpc_failures_total",
)

ABSENT = {
    "messages_per_chat_per_minute": "it would need a label for each chat: the log names the hot ones (`hot_chats`)",
}
