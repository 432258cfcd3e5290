"""What all that deliver may do, wherever they run: tell of ends, look up secrets, assume roles.

Owns: these grants, from a stage's settings and its connectors. Refuses to know: who has them.
"""

from collections.abc import Iterator

from constructs import Construct

from infra import broker, secrets
from infra.grants import Grant
from infra.surroundings import Surroundings


def tell(around: Surroundings) -> Iterator[Grant]:
    """Yield leave to tell that a job ended; whoever ends it tells."""
    yield Grant(
        "TellEventBus",
        "every job's end is told on the event bus",
        ("events:PutEvents",),
        (around.event_bus_arn,),
    )
    yield from broker.tell_of_jobs(around.stage.cluster)


def look_up(scope: Construct, around: Surroundings, *, producer: bool) -> Iterator[Grant]:
    """Yield leave to look up what references lead to, a producer's for who makes one."""
    found = [one.secrets(producer=producer) for one in around.connectors]
    names = secrets.referred(around.stage.settings).union(*found)
    yield from secrets.read(scope, names, around.stage.secret_key_arns)


def enter(around: Surroundings) -> Iterator[Grant]:
    """Yield leave to show the brokers credentials, and other accounts' buckets a role."""
    yield from broker.credentials(around.stage.cluster)
    connectors = around.connectors
    roles = sorted({one.checked.role_arn for one in connectors if one.checked.role_arn})
    if roles:
        yield Grant(
            "AssumeRoles",
            "connectors read other accounts' buckets with these roles",
            ("sts:AssumeRole",),
            tuple(roles),
        )
