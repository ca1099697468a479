"""What every REST route shares: routing, parsing, rate limits, idempotency, errors, the OpenAPI document."""
