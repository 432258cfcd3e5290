"""The processes that units of systemd and the manifest of Kubernetes declare."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
INSTALLED, CONFIGURED = "/opt/extentflow/bin/", "/etc/extentflow/"


@dataclass(frozen=True)
class Declared:
    """A process as a unit or a manifest declares it; `probe` is the path that says it is ready."""

    command: list[str]
    environment: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    probe: str | None = None


def of_unit(name: str) -> Declared:
    """What systemd runs; it expands ${NAME} in a command (systemd.service, COMMAND LINES)."""
    text = (DEPLOY / "systemd" / f"{name}.service").read_text().replace("\\\n", " ")
    _, _, service = text.partition("\n[Service]\n")
    lines = [line for line in service.splitlines() if line and line[0] not in "#["]
    pairs = [tuple(line.split("=", 1)) for line in lines]
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    environment = dict(one.split("=", 1) for one in values.get("Environment", []))
    (file,) = values["EnvironmentFile"]
    assert file.startswith(CONFIGURED)
    example = DEPLOY / "systemd" / file.removeprefix(CONFIGURED)
    given = (line for line in example.read_text().splitlines() if line and line[0] != "#")
    environment |= dict(line.split("=", 1) for line in given)
    (command,) = values["ExecStart"]
    return Declared(shlex.split(command), environment)


def manifest() -> list[dict[str, Any]]:
    """The objects that Kubernetes gets."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "extentflow.yaml").read_text()))


def of_manifest(name: str) -> Declared:
    """What Kubernetes runs; it expands $(NAME) in arguments."""
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in manifest()}
    pod = by_name["Deployment", name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment: dict[str, str] = {}
    for source in container["envFrom"]:
        environment |= by_name["ConfigMap", source["configMapRef"]["name"]]["data"]
    environment |= {one["name"]: one["value"] for one in container.get("env", [])}
    (mount,) = [one for one in container["volumeMounts"] if one.get("readOnly")]
    (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
    assert f"{mount['mountPath']}/" == CONFIGURED
    files = by_name["Secret", volume["secret"]["secretName"]]["stringData"]
    probe = container.get("readinessProbe", {}).get("httpGet", {})
    assert not probe or probe["port"] == container["ports"][0]["containerPort"]
    command = [*container["command"], *container["args"]]
    return Declared(command, environment, files, probe.get("path"))
