"""The real stack on one machine: Kafka, an S3 server, DynamoDB, and a Spark cluster for tests."""
