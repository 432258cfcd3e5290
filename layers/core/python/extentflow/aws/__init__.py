"""What the adapters of AWS services share: sessions, error translation, batches.

Each adapter (S3, DynamoDB, SQS, EventBridge, EMR Serverless, Secrets Manager) defines its own
client, its own error codes and its own entries.
"""

from extentflow.aws.sessions import silence_sdk_log

# At import, so that no client exists before the SDK's log is silenced.
silence_sdk_log()
