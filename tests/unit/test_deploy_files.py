"""Units, manifest and their examples use what there is."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.support.declared import (
    CONFIGURED,
    DEPLOY,
    INSTALLED,
    Declared,
    manifest,
    of_manifest,
    of_unit,
)
from tests.unit.test_docs import blocks

from extentflow.cli import app
from extentflow.config.files import parse_text
from extentflow.config.worker import load
from extentflow.discovery.sources import SecretPathProof, declared
from extentflow.wiring import check_connector

PAGE = DEPLOY.parent / "docs" / "on-premises.md"
SERVICES = ("extentflow-receive", "extentflow-stream")

both = pytest.mark.parametrize("read", [of_unit, of_manifest])
services = pytest.mark.parametrize("name", SERVICES)


@both
@services
def test_a_declared_command_exists_with_its_options(
    read: Callable[[str], Declared], name: str
) -> None:
    program, *words = read(name).command

    command = typer.main.get_command(app).commands[words.pop(0)]  # type: ignore[attr-defined]
    options = {option for parameter in command.imported.params for option in parameter.opts}
    assert program == f"{INSTALLED}extentflow"
    assert {word for word in words if word.startswith("--")} <= options


@both
@services
def test_every_declared_variable_is_a_setting(read: Callable[[str], Declared], name: str) -> None:
    found = load(read(name).environment, read_text=lambda _path: None)

    assert found.ledger_url is not None
    assert found.ledger_url.scheme == "postgresql"
    assert found.ledger_password == f"${{file:{CONFIGURED}ledger.properties:password}}"


def test_the_example_files_of_the_manifest_are_what_the_page_describes() -> None:
    files = of_manifest("extentflow-receive").files

    (source,) = declared(files["sources.json"])
    assert isinstance(source.proof, SecretPathProof)
    assert parse_text(files["ledger.properties"], "ledger.properties").keys() == {"password"}
    keys = set(re.findall(r"grid\.properties:(\w+)", PAGE.read_text()))
    assert parse_text(files["grid.properties"], "grid.properties").keys() == keys


def test_the_connector_of_the_page_is_one() -> None:
    (example,) = blocks(PAGE, "yaml")

    assert check_connector(parse_text(example, "grid.yaml")).endpoint_type == "storagegrids3"


def test_units_name_no_file_that_the_page_does_not_explain() -> None:
    named = {
        Path(file).name
        for name in SERVICES
        for file in re.findall(rf"{CONFIGURED}[\w.-]+", " ".join(of_unit(name).command))
    }

    assert named - {"receiver.pem", "receiver.key"} <= set(re.findall(r"[\w.-]+", PAGE.read_text()))


# https://kubernetes.io/docs/concepts/security/pod-security-standards/, Baseline and Restricted.
VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
    *("projected", "secret"),
}
SYSCTLS = {
    *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies"),
    *("net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"),
    *("net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
    *("net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"),
}
SELINUX = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
CONFINED = {"RuntimeDefault", "Localhost"}


def violations(pod: dict[str, Any]) -> Iterator[str]:
    """The rules of the "restricted" standard that a pod breaks."""
    whole = pod.get("securityContext", {})
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    yield from (
        f"volume {kind}"
        for volume in pod.get("volumes", [])
        for kind in volume.keys() - {"name"} - VOLUMES
    )
    yield from (one["name"] for one in whole.get("sysctls", []) if one["name"] not in SYSCTLS)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod.get(kind, []):
            yield from of_container(container, whole)


def of_container(container: dict[str, Any], whole: dict[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    merged = {**whole, **own}
    linux, capabilities = merged.get("seLinuxOptions", {}), own.get("capabilities", {})
    probes = [container.get(f"{kind}Probe", {}) for kind in ("liveness", "readiness", "startup")]
    hooks = [*probes, *container.get("lifecycle", {}).values()]
    checks = {
        "privileged": own.get("privileged", False) is False,
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities.drop": "ALL" in capabilities.get("drop", []),
        "capabilities.add": set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "runAsNonRoot": merged.get("runAsNonRoot") is True,
        "runAsUser": merged.get("runAsUser") != 0,
        "seccompProfile": merged.get("seccompProfile", {}).get("type") in CONFINED,
        "appArmorProfile": merged.get("appArmorProfile", {}).get("type", "RuntimeDefault")
        in CONFINED,
        "seLinuxOptions": linux.get("type", "") in SELINUX and not {"user", "role"} & linux.keys(),
        "procMount": own.get("procMount", "Default") == "Default",
        "hostProcess": not merged.get("windowsOptions", {}).get("hostProcess"),
        "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        "host of a probe": not any(
            action.get("host")
            for hook in hooks
            for action in hook.values()
            if isinstance(action, dict)
        ),
    }
    yield from (name for name, kept in checks.items() if not kept)


def pods() -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in manifest()
        if one["kind"] == "Deployment"
    }


@services
def test_the_restricted_standard_admits_every_pod(name: str) -> None:
    assert list(violations(pods()[name])) == []


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"allowPrivilegeEscalation": None}, "allowPrivilegeEscalation"),
        ({"capabilities": {}}, "capabilities.drop"),
        ({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}, "capabilities.add"),
        ({"seccompProfile": {"type": "Unconfined"}}, "seccompProfile"),
        ({"runAsNonRoot": False}, "runAsNonRoot"),
        ({"runAsUser": 0}, "runAsUser"),
        ({"privileged": True}, "privileged"),
    ],
)
def test_the_rules_find_what_the_restricted_standard_refuses(
    changes: dict[str, Any], broken: str
) -> None:
    pod = deepcopy(pods()["extentflow-receive"])
    pod["containers"][0]["securityContext"] |= changes

    assert list(violations(pod)) == [broken]


@services
def test_a_pod_has_no_more_than_it_needs(name: str) -> None:
    pod = pods()[name]
    (container,) = pod["containers"]
    policies = [one["spec"] for one in manifest() if one["kind"] == "NetworkPolicy"]

    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert re.fullmatch(r"[\w./-]+@sha256:[0-9a-f]{64}", container["image"])
    assert {"app": name} in [policy["podSelector"]["matchLabels"] for policy in policies]


def test_a_drained_node_leaves_a_receiver() -> None:
    objects = {one["kind"]: one for one in manifest() if one["kind"] == "PodDisruptionBudget"}
    budget = objects["PodDisruptionBudget"]["spec"]
    (receive,) = (
        one
        for one in manifest()
        if one["metadata"]["name"] == "extentflow-receive" and one["kind"] == "Deployment"
    )

    assert budget["selector"] == receive["spec"]["selector"]
    assert 0 < budget["minAvailable"] < receive["spec"]["replicas"]
