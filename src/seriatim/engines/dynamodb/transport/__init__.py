"""Requests to DynamoDB and its answers: signing, connections, errors."""
