"""The real stack on one machine: Kafka, S3, DynamoDB, SQS, and a Spark cluster for tests."""
