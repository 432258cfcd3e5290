"""The local stack's settings."""

from pathlib import Path

import pytest

from extentflow.errors import Misconfigured
from extentflow_local.stack.settings import LocalSettings


def test_defaults_are_the_documented_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    settings = LocalSettings.from_environment({"PATH": "/bin"})

    assert settings.ports == {
        "kafka": 19092,
        "s3": 18333,
        "dynamodb": 18000,
        "sqs": 19324,
        "aws": 15000,
        "registry": 18081,
        "receiver": 18380,
    }
    assert settings.root == tmp_path.resolve()
    assert settings.cache == Path.home() / ".cache" / "extentflow"
    assert (settings.java_home, settings.ivy_settings) == (None, None)


def test_the_environment_wins_over_defaults(tmp_path: Path) -> None:
    ivy = tmp_path / "ivysettings.xml"
    ivy.touch()

    settings = LocalSettings.from_environment(
        {
            "EXTENTFLOW_LOCAL_KAFKA_PORT": "29092",
            "EXTENTFLOW_LOCAL_SQS_PORT": "29324",
            "EXTENTFLOW_LOCAL_DIR": str(tmp_path),
            "EXTENTFLOW_IVY_SETTINGS": str(ivy),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
    )

    assert (settings.ports["kafka"], settings.ports["sqs"]) == (29092, 29324)
    assert settings.root == tmp_path.resolve()
    assert settings.ivy_settings == ivy.resolve()
    assert settings.cache == tmp_path / "cache" / "extentflow"


def test_all_mistakes_are_reported_at_once() -> None:
    environment = {
        "EXTENTFLOW_LOCAL_KAFKA_PORT": "70000",
        "EXTENTFLOW_LOCAL_S3_PORT": "¹",
        "EXTENTFLOW_IVY_SETTINGS": "/absent",
    }

    with pytest.raises(Misconfigured) as caught:
        LocalSettings.from_environment(environment)

    assert len(caught.value.problems) == 3
    assert "EXTENTFLOW_LOCAL_KAFKA_PORT is '70000'" in caught.value.problems[0]
