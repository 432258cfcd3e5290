"""Writes the bill of materials of what is deployed: packages, versions, licences (CycloneDX 1.6).

requirements/lambda.txt, emr.txt, image.txt ──pins──> packages of .venv ──metadata──> build/sbom/
"""

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from .wheels import ROOT, PackagingError

LOCKS = tuple(ROOT / "requirements" / name for name in ("lambda.txt", "emr.txt", "image.txt"))
TARGET = ROOT / "build" / "sbom" / "extentflow.cdx.json"

# Licences under which a package may be shipped unchanged, beside code under Apache-2.0.
PERMITTED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
        *("MPL-2.0", "PSF-2.0", "Zlib"),
        # Of psycopg, which is imported, and which a user of the image may replace.
        "LGPL-3.0-only",
    }
)
# What packages write that have no SPDX expression.
_SPDX = {
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "ISC License": "ISC",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
}
# Packages whose metadata do not say it: their LICENSE file does.
_STATED = {"py4j": "BSD-3-Clause", "python-dateutil": "Apache-2.0 OR BSD-3-Clause"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]+")
_OPERATORS = frozenset({"AND", "OR", "WITH"})


@dataclass(frozen=True, slots=True)
class Package:
    """One shipped package; `licence` is an SPDX expression."""

    name: str
    version: str
    licence: str

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(locks: Iterable[Path]) -> dict[str, str]:
    """Return the version of every package that the locks pin.

    Raises:
        PackagingError: two locks pin different versions.
    """
    found: dict[str, str] = {}
    for lock in locks:
        for name, version in _PIN.findall(lock.read_text(encoding="utf-8")):
            if found.setdefault(name, version) != version:
                raise PackagingError(f"{lock}: {name} is {found[name]} elsewhere; run `make lock`")
    return found


def installed(name: str) -> Mapping[str, Sequence[str]]:
    """Return the metadata of a package of this environment.

    Raises:
        PackagingError: it is not installed.
    """
    try:
        found = metadata(name)
    except PackageNotFoundError:
        raise PackagingError(f"{name}: not installed; run `make setup`") from None
    return {key: found.get_all(key) or [] for key in found}


def packages(
    pinned: Mapping[str, str],
    described: Callable[[str], Mapping[str, Sequence[str]]] = installed,
) -> Iterator[Package]:
    """Yield every pinned package with its licence, by name.

    Raises:
        PackagingError: another version is installed, or its licence is unknown or not permitted.
    """
    for name, version in sorted(pinned.items()):
        fields = described(name)
        if fields["Version"][0] != version:
            raise PackagingError(
                f"{name}: {fields['Version'][0]} is installed, {version} is pinned; run `make lock`"
            )
        yield Package(name, version, _licence(name, fields))


def _licence(name: str, fields: Mapping[str, Sequence[str]]) -> str:
    classifiers = [one for one in fields.get("Classifier", ()) if one in _SPDX]
    # An SPDX expression is the packager's last word; the older fields only stand in for one.
    stated = fields.get("License-Expression") or [_STATED.get(name, "")]
    said = stated if any(stated) else [*fields.get("License", ()), *classifiers]
    for text in said:
        expression = _SPDX.get(text, text)
        identifiers = set(_IDENTIFIER.findall(expression)) - _OPERATORS
        if identifiers and identifiers <= PERMITTED:
            return expression
    shown = "; ".join(text for text in said if text) or "none"
    raise PackagingError(
        f"{name}: its licence ({shown:.80}) is unknown or not permitted; add it to"
        " infra/recipes/bill.py, or remove the package"
    )


def bill(shipped: Sequence[Package]) -> dict[str, Any]:
    """Return the bill of materials; equal packages have equal bills."""
    content = "\n".join(f"{one.purl} {one.licence}" for one in shipped)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "extentflow",
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": one.purl,
                "name": one.name,
                "version": one.version,
                "purl": one.purl,
                "licenses": [{"expression": one.licence}],
            }
            for one in shipped
        ],
    }


def main() -> None:
    """Write the bill of materials, and show each package with its licence."""
    shipped = list(packages(pins(LOCKS)))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(bill(shipped), indent=2) + "\n", encoding="utf-8")
    for one in shipped:
        sys.stdout.write(f"{one.name:32}{one.version:16}{one.licence}\n")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {len(shipped)} packages\n")


if __name__ == "__main__":
    main()
