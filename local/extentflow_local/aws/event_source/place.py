"""Where functions run on this machine: code, path, environment."""

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from extentflow.errors import Misconfigured
from extentflow.retry import Clock
from extentflow_local.aws.event_source.deployment import Deployment, Function
from extentflow_local.aws.event_source.execution import ExecutionEnvironment, Launch
from extentflow_local.stack.errors import ProgramMissing
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for logs and temporary files, and the location of code.

    `functions` has one folder of code per function; `layers` are on the path of all of them. A
    function has at most `processes` processes, fewer if its deployment limits them.
    """

    directory: Path
    functions: Path
    layers: Sequence[Path]
    processes: int = 4
    http_port: int = 0
    search_path: str = os.defpath

    def require(self, deployment: Deployment) -> None:
        """Check that code and runtime client exist.

        Raises:
            Misconfigured: code is missing.
            ProgramMissing: the runtime client cannot run here.
        """
        missing = [
            f"{self.functions / name}: no such folder; the template deploys it as a function"
            for name in deployment.run_here()
            if not (self.functions / name).is_dir()
        ]
        if missing:
            raise Misconfigured(missing)
        if importlib.util.find_spec("runtime_client") is None:
            raise ProgramMissing(
                "awslambdaric is not installed, or lacks its native part, which needs Linux"
            )

    def most(self, deployment: Deployment, name: str) -> int:
        """Return the maximum number of processes of a function."""
        limits = [self.processes, deployment.functions[name].reserved]
        limits += [one.most_concurrent for one in deployment.mappings if one.function == name]
        return min(limit for limit in limits if limit is not None)

    def log_of(self, name: str) -> Path:
        """Return the log file of a function."""
        return self.directory / f"{name}.log"

    def starter(
        self, deployment: Deployment, name: str, clock: Clock
    ) -> Callable[[], ExecutionEnvironment]:
        """Return a callable that starts another environment of a function."""
        function = deployment.functions[name]

        def start() -> ExecutionEnvironment:
            (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
            launch = Launch(
                handler=function.handler,
                directory=self.functions / name,
                path=self.layers,
                environment=dict(self._environment(function, deployment.sqs)),
                log=self.log_of(name),
                function_arn=function.arn,
                timeout_seconds=function.timeout_seconds,
            )
            return ExecutionEnvironment(launch, clock)

        return start

    def _environment(self, function: Function, sqs: str) -> Iterator[tuple[str, str]]:
        """Yield the variables that Lambda sets; a function's own override them, except names."""
        temporary = str(self.directory / "tmp")
        yield from {
            "PATH": self.search_path,
            # Independent of the user: neither ~/.aws nor this machine's locale.
            "HOME": temporary,
            "TMPDIR": temporary,
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_SQS": sqs,
            # Stores and registries are on the loopback interface, as Lambda's API is.
            "EXTENTFLOW_CONNECTORS_HOST_ALLOWED": "*,127.0.0.1",
        }.items()
        yield from function.environment.items()
        name = function.deployed_name
        yield from {
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mib),
            "AWS_LAMBDA_FUNCTION_NAME": name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{uuid4().hex}",
        }.items()
