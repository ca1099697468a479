"""Ports met by DynamoDB: eleven tables, reached by a thin client of our own (docs/decisions/0031)."""
