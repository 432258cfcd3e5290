"""Sessions of the SDK, each one's own: boto3's shared one must not be set up from several threads.

Owns: what sessions of a process share, the descriptions of services. Refuses to know: credentials,
clients.
"""

import os

import boto3.session
import botocore.session
from botocore.loaders import create_loader

# Reading DynamoDB's description takes longer than making its client.
_DESCRIPTIONS = create_loader(os.environ.get("AWS_DATA_PATH"))


def own_session() -> boto3.session.Session:
    """Return a session of the caller's own, of the environment's credentials and region."""
    return boto3.session.Session(botocore_session=bare_session())


def bare_session() -> botocore.session.Session:
    """Return what a session is made of, for whoever brings credentials."""
    session = botocore.session.Session()
    session.register_component("data_loader", _DESCRIPTIONS)
    return session
