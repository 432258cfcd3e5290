"""Adapters by name: built-in ones, installed ones, and what goes wrong with either."""

from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.plugins import (
    BUILT_IN,
    FORMATS,
    EntryPoint,
    Registry,
    from_extra,
    installed_entry_points,
)

ACME = EntryPoint("acme", "collections:OrderedDict", "extentflow-acme 1.0")


def registry(*found: EntryPoint, group: str = "example.group") -> Registry[object]:
    return Registry(group, "format", find=lambda asked: found if asked == group else ())


def test_an_installed_adapter_is_found_by_its_name() -> None:
    formats = registry(ACME)

    assert formats.names() == ["acme"]
    assert formats.get("acme").__name__ == "OrderedDict"  # type: ignore[attr-defined]
    assert formats.get("acme") is formats.get("acme")


def test_entry_points_may_name_attributes_of_attributes() -> None:
    found = EntryPoint("nested", "collections:OrderedDict.fromkeys", "extentflow-acme 1.0")

    assert callable(registry(found).get("nested"))


def test_names_are_known_without_importing_an_adapter() -> None:
    broken = EntryPoint("broken", "no_such_module:FORMAT", "extentflow-broken 2.1")

    assert registry(ACME, broken).names() == ["acme", "broken"]


def test_a_module_that_ends_the_process_is_reported_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the command would end with the exit code of the module, such as 0."""
    (tmp_path / "ends_the_process.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    formats = registry(EntryPoint("script", "ends_the_process:FORMAT", "extentflow-script 1.0"))

    assert "SystemExit: 0" in formats.load_problems("script")[0]


@pytest.mark.parametrize("reference", ["no_such_module:FORMAT", "collections:NoSuchName"])
def test_an_adapter_that_cannot_be_loaded_names_its_package(reference: str) -> None:
    formats = registry(ACME, EntryPoint("broken", reference, "extentflow-broken 2.1"))

    with pytest.raises(Misconfigured) as raised:
        formats.get("broken")

    assert f"broken = {reference} of package extentflow-broken 2.1" in str(raised.value)
    assert "uninstall" in str(raised.value)
    assert callable(formats.get("acme"))


def test_an_entry_point_to_something_else_is_an_error(golden: Golden) -> None:
    formats = registry(EntryPoint("odd", "collections:__name__", "extentflow-odd 1"))

    with golden.raises(Misconfigured, match="extentflow-odd"):
        formats.get("odd")


def test_two_packages_that_claim_one_name_are_an_error_at_first_use() -> None:
    other = EntryPoint("acme", "other:FORMAT", "extentflow-other 3")

    with pytest.raises(Misconfigured) as raised:
        registry(ACME, other).names()

    assert "extentflow-acme 1.0" in str(raised.value)
    assert "extentflow-other 3" in str(raised.value)


def test_a_package_cannot_replace_a_built_in_adapter(golden: Golden) -> None:
    csv = EntryPoint("csv", "collections:OrderedDict", "extentflow-acme 1.0")

    with golden.raises(Misconfigured, match="'csv'.*extentflow-acme"):
        registry(csv, group=FORMATS).get("csv")


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        registry(ACME).get("unknown")


def test_a_registered_adapter_lives_in_this_process_only() -> None:
    formats = registry(ACME)

    formats.register("mine", dict)
    formats.register("mine", dict)

    assert formats.names() == ["acme", "mine"]
    assert formats.get("mine") is dict


@pytest.mark.parametrize("name", ["acme", "mine"])
def test_registering_another_adapter_under_a_taken_name_is_an_error(name: str) -> None:
    formats = registry(ACME)
    formats.register("mine", dict)

    with pytest.raises(Misconfigured, match=f"'{name}' is already defined"):
        formats.register(name, list)


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group, names in BUILT_IN.items() for name in names]
)
def test_every_built_in_adapter_can_be_loaded(group: str, name: str) -> None:
    assert Registry(group, "adapter", is_adapter=lambda _: True, find=lambda _: ()).get(name)


def test_installed_entry_points_name_their_packages() -> None:
    found = {each.name: each for each in installed_entry_points("pytest11")}

    assert found["xdist"].package.startswith("pytest-xdist ")
    assert found["xdist"].reference == "xdist.plugin"


def test_a_missing_package_of_an_extra_is_named_with_the_command_that_installs_it(
    golden: Golden,
) -> None:
    with (
        golden.raises(
            Misconfigured,
            match=r"--x.*no_such.*`pip install 'pyspark>=4.0,<4.1'`",
        ),
        from_extra("spark", "--x", ", or y"),
    ):
        raise ModuleNotFoundError(name="no_such.part")


@pytest.mark.parametrize("name", ["extentflow.no_such", None])
def test_a_missing_module_of_the_library_is_a_defect_and_no_extra(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError), from_extra("spark", "--engine x"):
        raise ModuleNotFoundError(name=name)
