"""The SDK's own log, without what proves to others who we are.

Owns: which of its loggers are silenced. Refuses to know: who reads a log, at which level.
"""

import logging

# At DEBUG it writes down session tokens, signatures and answers: a request that can be sent again,
# a token that can be put together again, a secret as it came.
SDK = "botocore"


def keep_secrets() -> None:
    """Let the SDK write warnings and errors only, however much others write."""
    logging.getLogger(SDK).setLevel(logging.WARNING)
