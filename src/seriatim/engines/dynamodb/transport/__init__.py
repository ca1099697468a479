"""From a request to DynamoDB's answer: signing, connections, errors."""
