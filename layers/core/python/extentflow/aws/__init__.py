"""What the adapters of AWS services share: sessions, error translation, batches.

Each adapter (S3, DynamoDB, SQS, EventBridge, EMR Serverless, Secrets Manager) defines its own
client, its own error codes and its own entries.
"""

import logging
import os

import boto3.session
import botocore.session
from botocore.loaders import create_loader

# At DEBUG botocore writes session tokens, signatures and response bodies: enough to repeat a
# request or to read a secret. Set at import, before any client exists, whatever the root level.
logging.getLogger("botocore").setLevel(logging.WARNING)

# Shared by all sessions: reading the description of DynamoDB takes longer than making its client.
_SERVICE_DESCRIPTIONS = create_loader(os.environ.get("AWS_DATA_PATH"))


def new_session() -> boto3.session.Session:
    """Return a new session with the environment's credentials and region.

    boto3's default session must not be initialised from several threads.
    """
    return boto3.session.Session(botocore_session=new_botocore_session())


def new_botocore_session() -> botocore.session.Session:
    """Return a botocore session without credentials, for a caller that sets its own."""
    session = botocore.session.Session()
    session.register_component("data_loader", _SERVICE_DESCRIPTIONS)
    return session
