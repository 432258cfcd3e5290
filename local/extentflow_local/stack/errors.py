"""Errors of the local stack, each with its remedy in the message.

ExtentflowError
└── LocalStackError
    ├── ProgramMissing     Java, weed or PySpark's jars are not installed, or too old
    ├── LockInvalid        the committed lock file does not parse
    ├── FetchFailed        artifacts could not be retrieved
    ├── WrongHash          an artifact differs from the locked one
    ├── PortTaken          another process listens on a service's port
    └── ServiceFailed      a service ended, or was not ready in time
"""

from extentflow.errors import Permanent


class LocalStackError(Permanent):
    """Root of the local stack's errors."""


class ProgramMissing(LocalStackError):  # noqa: N818 - the tree reads as outcomes
    """A program that the stack runs is not installed, or too old."""


class LockInvalid(LocalStackError):  # noqa: N818
    """The component lock cannot be read."""


class FetchFailed(LocalStackError):  # noqa: N818
    """Artifacts could not be retrieved."""


class WrongHash(LocalStackError):  # noqa: N818
    """An artifact's SHA-256 differs from the locked one."""


class PortTaken(LocalStackError):  # noqa: N818
    """Another process listens on a service's port."""


class ServiceFailed(LocalStackError):  # noqa: N818
    """A service ended, or was not ready in time."""
