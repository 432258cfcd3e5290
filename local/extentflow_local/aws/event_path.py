"""The whole event path on this machine: the project's functions on a running stack.

S3 server ──> notifier ──> arrivals queue ──> planner ──> extents queue ──> worker ──> Kafka
HTTP ──> receiver ─────────────^                |
                                                └─ StartJobRun ──> emulator of EMR Serverless
                                   reconciler <── a run ended ───────────┘
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from extentflow.aws import new_session
from extentflow.discovery.sources import declared
from extentflow_local.aws.emr.service import EmrServerless
from extentflow_local.aws.event_source.delivery import Observe
from extentflow_local.aws.event_source.deployment import Deployment
from extentflow_local.aws.event_source.names import NOWHERE, TemplateContext
from extentflow_local.aws.event_source.notifier import notifying, to_queue
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.aws.event_source.template import read_template
from extentflow_local.aws.project import Project
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.stack import Stack

PREFIX = "EXTENTFLOW_"
SECRET_ID = "EXTENTFLOW_RECEIVER_SECRET_ID"  # noqa: S105 - a variable's name
_OPEN_ALLOWED = "EXTENTFLOW_RECEIVER_OPEN_ALLOWED"
_BUS = "EXTENTFLOW_EVENT_BUS"
SECRET_PATH = "extentflow-local"  # noqa: S105 - of a server on the loopback interface
# Default sources of notifications, for the buckets of any endpoint.
SOURCES = json.dumps(
    [
        {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY},
        {"secret_path": SECRET_PATH},
    ]
)
_THRESHOLD = "EXTENTFLOW_SPARK_THRESHOLD_BYTES"
# Settings that differ from the template on a stack of Kafka, S3, DynamoDB, SQS; without an emulator
# of EMR Serverless nothing starts Spark there.
ELSEWHERE: Mapping[str, None] = MappingProxyType(
    {
        "EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": None,
        "EXTENTFLOW_KAFKA_SASL_MECHANISM": None,
        _BUS: None,
        SECRET_ID: None,
        "EXTENTFLOW_SPARK_APPLICATION_ID": None,
        "EXTENTFLOW_SPARK_JOB_ROLE_ARN": None,
        "EXTENTFLOW_SPARK_ENTRY_POINT": None,
        "EXTENTFLOW_SPARK_ARCHIVE": None,
        "EXTENTFLOW_SPARK_TIMEOUT_MINUTES": None,
        _THRESHOLD: None,
    }
)
_QUEUES = ("_QUEUE_URL", "_DLQ_URL")


@dataclass(frozen=True, kw_only=True)
class LocalEventPath:
    """The functions of a template on a running stack.

    `prefix` is the start of the names of all resources of the template. `environment` overrides
    the variables that stack and template define; None removes a variable. `sources` are declared as
    in the receiver's secret. Without Secrets Manager and EventBridge in the stack, there is no
    receiver with declared sources, and no event bus. `emr` runs jobs above the threshold, which is
    that of the template unless `environment` overrides it; it must be running, and is not stopped
    here. `change` is applied to the deployment of the template.

    Raises:
        Misconfigured: the sources are not valid.
    """

    stack: Stack
    project: Project
    template: Path
    directory: Path
    prefix: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    sources: str = SOURCES
    processes: int = 2
    http_port: int = 0
    emr: EmrServerless | None = None
    change: Callable[[Deployment], Deployment] = lambda deployment: deployment

    def __post_init__(self) -> None:
        declared(self.sources, open_allowed=True)

    @cached_property
    def deployment(self) -> Deployment:
        """The template's resources on this stack."""
        context = TemplateContext(
            sqs=self.stack.endpoint("sqs"),
            application=self.emr.id if self.emr else NOWHERE,
            prefix=self.prefix,
            environment={
                **self._elsewhere(),
                **self.stack.environment(),
                **self.environment,
            },
        )
        return self.change(read_template(self.template, context))

    @property
    def settings(self) -> dict[str, str]:
        """The functions' settings, for commands on the same stack."""
        given = self.deployment.functions["worker"].environment
        return {name: value for name, value in given.items() if name.startswith(PREFIX)}

    @property
    def queues(self) -> dict[str, str]:
        """The settings that contain queue URLs."""
        return {name: value for name, value in self.settings.items() if name.endswith(_QUEUES)}

    @contextmanager
    def run(
        self,
        *,
        uploads: bool = True,
        buckets: Collection[str] = (),
        observe: Observe = lambda _delivery: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> Iterator[EventSource]:
        """Run the functions; the ledger must exist.

        With `uploads`, every upload to `buckets` (to any bucket, if none is named) sends a
        notification; `on_end` is called when notifications end.

        Raises:
            Misconfigured, LocalStackError: as `EventSource`.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._declare_sources()
        with (
            EventSource(self.deployment, self._place, observe=observe) as source,
            forward_run_events(self.emr, source),
            self._notifying(buckets, on_end) if uploads else nullcontext(),
        ):
            yield source

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each function that runs here."""
        return {name: self._place.log_of(name) for name in self.deployment.run_here()}

    @property
    def _place(self) -> Place:
        return Place(
            directory=self.directory,
            functions=self.project.functions,
            layers=[self.project.layer],
            processes=self.processes,
            http_port=self.http_port,
            search_path=self.stack.settings.search_path,
        )

    def _elsewhere(self) -> dict[str, str | None]:
        whole = emr_environment(self.emr)
        if "aws" not in self.stack.endpoints():
            return whole
        ours = {name: value for name, value in whole.items() if name != _BUS}
        return {**ours, _OPEN_ALLOWED: "true", SECRET_ID: f"{self.prefix}extentflow/sources"}

    def _declare_sources(self) -> None:
        """Store the sources in the secret that the receiver reads."""
        secret = self.settings.get(SECRET_ID)
        if secret is None:
            return
        client = new_session().client(
            "secretsmanager",
            endpoint_url=self.stack.endpoint("aws"),
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        try:
            client.create_secret(Name=secret, SecretString=self.sources)
        except client.exceptions.ResourceExistsException:
            client.put_secret_value(SecretId=secret, SecretString=self.sources)
        client.close()

    def _notifying(
        self, buckets: Collection[str], on_end: Callable[[], object]
    ) -> AbstractContextManager[None]:
        send = to_queue(self.deployment.sqs, self.deployment.outputs["ArrivalsQueueUrl"])
        output = self.directory / "uploads.log"
        return notifying(self.stack, send, output, buckets=buckets, on_end=on_end)


def emr_environment(emr: EmrServerless | None = None) -> dict[str, str | None]:
    """Return ELSEWHERE; with an emulator of EMR Serverless, also its settings and any threshold."""
    if emr is None:
        return {**ELSEWHERE}
    kept = {name: value for name, value in ELSEWHERE.items() if name != _THRESHOLD}
    return {**kept, **emr.environment}


def forward_run_events(
    emr: EmrServerless | None, source: EventSource
) -> AbstractContextManager[None]:
    """Send the functions events of ended runs while the context is active."""
    return nullcontext() if emr is None else emr.forwarding(source.receive_event)
