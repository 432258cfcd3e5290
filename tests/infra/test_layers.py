"""The layer of imported packages: fits, works, and a stack without it is never deployed."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from infra.project import Project
from infra.recipes import lambda_layer, wheels
from infra.stack import ExtentflowStack
from tests.infra.conftest import Templates
from tests.support.plugin import build_wheel, install_in_layer
from tests.support.synthesis import FUNCTIONS, PLAIN, QUICK, Bench, of_type, rejected

ROOT = Project().root
LAYER = "AWS::Lambda::LayerVersion"
# Of the command line of a package that functions import; of cffi, cryptography loads the compiled
# module only, and pycparser is for those who compile one.
NOT_IMPORTED = {"click", "cffi", "pycparser"}
CALLED = (
    "dynamodb",
    "emr-serverless",
    "events",
    "glue",
    "kms",
    "s3",
    "secretsmanager",
    "sqs",
    "sts",
)


# -- what was built -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layer() -> Path:
    assert lambda_layer.built() is not None, "run `make layers` first"
    return ROOT / lambda_layer.LAYER


@pytest.mark.archive
def test_the_layer_fits_and_is_complete(layer: Path) -> None:
    check(layer / "python")

    assert wheels.total_bytes(layer) < 250_000_000


@pytest.mark.archive
def test_the_layer_reports_its_size(layer: Path) -> None:
    made = lambda_layer.built()

    assert made is not None
    assert made.unzipped_bytes == wheels.total_bytes(layer)


@pytest.mark.archive
@pytest.mark.parametrize(
    "package",
    [
        "aws_lambda_powertools",
        "aws_msk_iam_sasl_signer",
        "boto3",
        "confluent_kafka",
        "cryptography",
        "pyarrow",
    ],
)
def test_the_layer_holds_what_functions_import(layer: Path, package: str) -> None:
    assert (layer / "python" / package / "__init__.py").is_file()


# -- what the recipe refuses ----------------------------------------------------------------------


def check(packages: Path) -> None:
    wheels.check(packages, lambda_layer.PLATFORM, most_bytes=lambda_layer.MOST_BYTES)


def test_a_layer_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(lambda_layer.MOST_BYTES + 1)

    with pytest.raises(wheels.PackagingError, match="250,000,001 bytes, 250,000,000 are allowed"):
        check(tmp_path)


@pytest.mark.parametrize(("machine", "fits"), [(183, True), (62, False)])
def test_a_library_of_another_machine_is_rejected(
    tmp_path: Path, machine: int, *, fits: bool
) -> None:
    header = b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")
    (tmp_path / "_fast.cpython-313-x.so").write_bytes(header)

    if fits:
        check(tmp_path)
    else:
        with pytest.raises(wheels.PackagingError, match="not built for arm64"):
            check(tmp_path)


def test_a_library_that_is_linked_to_one_that_was_left_out_is_rejected(tmp_path: Path) -> None:
    header = b"\x7fELF" + bytes(14) + lambda_layer.PLATFORM.machine.elf.to_bytes(2, "little")
    needs = header + b"\0libarrow.so.2600\0libarrow_flight.so.2600\0libc.so.6\0"
    (tmp_path / "libarrow.so.2600").write_bytes(header)
    (tmp_path / "_flight.so").write_bytes(needs)

    with pytest.raises(wheels.PackagingError, match=r"linked to libarrow_flight\.so\.2600"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("pyarrow/libarrow_flight.so.2600", True),
        ("pyarrow/libarrow.so.2600", False),
        ("pyarrow/libarrow_python.so", True),
        ("pyarrow/libarrow_python.so.2600", False),
        ("pyarrow/libarrow_python.so.2600.1.0", True),
        ("numpy/tests/test_all.py", True),
        ("numpy/testing/__init__.py", False),
        ("botocore/data/ec2/2016-11-15/service-2.json.gz", True),
        ("botocore/data/sqs/2012-11-05/service-2.json.gz", False),
        ("botocore/data/endpoints.json", False),
        ("boto3/data/sqs/2012-11-05/resources-1.json", False),
        ("orjson/__init__.pyi", True),
    ],
)
def test_what_no_function_imports_is_left_out(path: str, *, left_out: bool) -> None:
    assert wheels.left_out(PurePosixPath(path)) is left_out


def test_trimming_leaves_no_empty_folders(tmp_path: Path) -> None:
    for path in ("pack/tests/deep/a.py", "pack/code.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")

    wheels.trim(tmp_path)

    assert [path.name for path in tmp_path.rglob("*")] == ["pack", "code.py"]


# -- plug-ins --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["dev", "emr", "lambda"])
def test_every_lock_includes_the_plug_ins_of_the_deployment(lock: str) -> None:
    included = (ROOT / "requirements" / f"{lock}.in").read_text().splitlines()

    assert "-r plugins.in" in included


def test_a_pinned_plug_in_keeps_its_entry_points_in_the_layer(tmp_path: Path) -> None:
    packages = tmp_path / "python"

    install_in_layer(build_wheel(tmp_path), packages)

    (found,) = importlib.metadata.distributions(path=[str(packages)])
    assert {(each.group, each.name) for each in found.entry_points} == {
        ("extentflow.formats", "acme"),
        ("extentflow.transforms", "acme_has_value"),
    }
    assert (packages / "extentflow_acme" / "__init__.py").is_file()


# -- what is left works: the same versions, trimmed in the same way, on this machine --------------

USE = """
import importlib.util, io, sys
sys.path[:0] = [{packages!r}, {core!r}]
import boto3, pyarrow as pa, pyarrow.compute as pc, pyarrow.csv, pyarrow.parquet as pq
for service in {services!r}:
    boto3.client(service, region_name="eu-central-1")
file = io.BytesIO()
pq.write_table(pa.table({{"a": [1, 2, 3]}}), file, compression="zstd")
assert pc.sum(pq.ParquetFile(file).read()["a"]).as_py() == 6
from extentflow import plugins
for group in (plugins.FORMATS, plugins.CONVERTERS, plugins.TRANSFORMS, plugins.PREDICATES,
              plugins.STORES):
    adapters = plugins.Registry(group, "adapter", is_adapter=lambda found: True)
    assert all(adapters.get(name) for name in adapters.names())
from extentflow.formats.parquet.column_keys import FileKeys
from pyarrow.parquet.encryption import create_encryption_properties
pq.write_table(pa.table({{"a": [4]}}), file := io.BytesIO(),
               encryption_properties=create_encryption_properties(b"of one footer.16"))
keys = FileKeys.of("b2Ygb25lIGZvb3Rlci4xNg==", None)
assert pq.ParquetFile(file, decryption_properties=keys.properties()).read()["a"].to_pylist() == [4]
for handler in {handlers!r}:
    spec = importlib.util.spec_from_file_location("handler", handler)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
from extentflow.aws.msk import TokenSigner
assert TokenSigner()("eu-central-1")[0]
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
assert AESGCM(bytes(16)).encrypt(bytes(12), b"", b"")
imported = {{name.partition(".")[0] for name in sys.modules}}
never = [package for package, modules in {packaged!r} if not imported & modules]
assert not never, f"no function imports {{never}}"
outside = [m.__file__ for m in sys.modules.values()
           if "site-packages" in (getattr(m, "__file__", None) or "")]
assert not outside, outside
print("works")
"""


def test_functions_can_be_imported_and_work_with_what_is_left(tmp_path: Path) -> None:
    for name in _pinned():
        for file in importlib.metadata.distribution(name).files or []:
            if ".." not in file.parts and not wheels.left_out(PurePosixPath(file)):
                target = tmp_path / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    code = USE.format(
        packages=str(tmp_path),
        core=str(Project().core / "python"),
        services=CALLED,
        handlers=[str(path) for path in (ROOT / "functions").glob("*/handler.py")],
        packaged=[(name, _modules(name)) for name in sorted(_pinned() - NOT_IMPORTED)],
    )
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    environment = {**os.environ, **credentials, "POWERTOOLS_METRICS_NAMESPACE": "extentflow"}

    # -S: no site-packages but what the layer would hold.
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout == "works\n", ran.stderr


def _modules(name: str) -> set[str]:
    """Return the top-level modules of a distribution."""
    files = importlib.metadata.distribution(name).files or []
    return {
        file.parts[0].removesuffix(".py")
        for file in files
        if file.suffix == ".py" or len(file.parts) > 1
    }


def _pinned() -> set[str]:
    text = (ROOT / lambda_layer.LOCK).read_text()
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


# -- a stack without the layer --------------------------------------------------------------------


def _without_layer(bench: Bench) -> None:
    (bench.root / lambda_layer.STAMP).unlink()


def _with_older_pins(bench: Bench) -> None:
    bench.write(str(lambda_layer.LOCK), "boto3==2\n")


def _with_half_a_layer(bench: Bench) -> None:
    shutil.rmtree(bench.root / lambda_layer.LAYER)


@pytest.mark.parametrize(
    "spoil",
    [
        _without_layer,
        _with_older_pins,
        pytest.param(_with_half_a_layer, marks=pytest.mark.variant),
    ],
)
def test_cloudformation_rejects_a_stack_without_the_current_layer(
    bench: Bench, spoil: Callable[[Bench], None]
) -> None:
    spoil(bench)

    assert rejected(bench.stack(PLAIN), "DepsLayer", "make layers")


def test_a_stack_with_the_layer_is_not_rejected(templates: Templates) -> None:
    template = templates("plain").to_json()

    assert "DepsLayerIsBuilt" not in template["Rules"]
    assert "DepsLayer" not in template["Parameters"]


def test_both_layers_are_for_the_functions_machine(templates: Templates) -> None:
    found = of_type(templates("plain"), LAYER)

    assert len(found) == 2
    for layer in found.values():
        assert layer["CompatibleArchitectures"] == ["arm64"]
        assert layer["CompatibleRuntimes"] == ["python3.13"]


def test_bytecode_caches_do_not_change_a_layer(tmp_path: Path, bench: Bench) -> None:
    core = tmp_path / "core" / "python" / "extentflow"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("")
    project = Project(bench.root, bench.root / "functions", tmp_path / "core")

    before = _core_asset(project)
    (core / "__pycache__").mkdir()
    (core / "__pycache__" / "x.cpython-313.pyc").write_text("")
    after = _core_asset(project)
    (core / "model.py").write_text("")
    changed = _core_asset(project)

    assert before == after
    assert before != changed


def test_every_function_has_both_layers(templates: Templates) -> None:
    assert len(FUNCTIONS) == 4
    layers = set(of_type(templates("plain"), LAYER))
    for found in of_type(templates("plain"), "AWS::Lambda::Function").values():
        if "Layers" in found:
            assert {layer["Ref"] for layer in found["Layers"]} == layers


def _core_asset(project: Project) -> str:
    stack = ExtentflowStack(cdk.App(context=QUICK), stage=PLAIN, project=project)
    for layer in of_type(Template.from_stack(stack), LAYER).values():
        if layer["Description"] == "extentflow itself":
            key: str = layer["Content"]["S3Key"]
            return key
    raise LookupError("no layer with the library")
