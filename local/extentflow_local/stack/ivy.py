"""Retrieve Maven artifacts with the Ivy that PySpark contains."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from extentflow_local.stack.components import Coordinate

EXACT_SETTINGS = Path(__file__).with_name("ivysettings.xml")

# Ivy's own timeouts are per connection; this one ends a retrieval that never completes.
_LONGEST_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Ivy:
    """How to run Ivy; `settings` is the user's settings file, which replaces all defaults."""

    java: Path
    jar: Path
    settings: Path | None = None

    def retrieve_exactly(
        self, artifacts: Iterable[Coordinate], *, into: Path, cache: Path, log: Path
    ) -> bool:
        """Retrieve exactly these artifacts into one folder, under `Coordinate.file_name`.

        Artifacts in `cache` are not fetched again. Returns whether Ivy reports success; its output
        is in `log`.
        """
        dependencies = "".join(_exact(artifact) for artifact in sorted(artifacts))
        pattern = into / "[artifact]-[revision](-[classifier]).[ext]"
        settings = self.settings or EXACT_SETTINGS
        return self._run(dependencies, pattern, settings=settings, cache=cache, log=log)

    def retrieve_closure(
        self, roots: Iterable[Coordinate], *, into: Path, cache: Path, log: Path
    ) -> bool:
        """Retrieve the runtime closure of `roots` as `group/module/version/file`."""
        dependencies = "".join(
            _dependency(root, conf="default->master,runtime", transitive=True) + "</dependency>"
            for root in roots
        )
        pattern = (
            into / "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
        )
        return self._run(dependencies, pattern, settings=self.settings, cache=cache, log=log)

    def _run(
        self, dependencies: str, pattern: Path, *, settings: Path | None, cache: Path, log: Path
    ) -> bool:
        cache.mkdir(parents=True, exist_ok=True)
        module = cache / "ivy.xml"
        module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
        command = [str(self.java), "-Xmx256m", "-XX:-UsePerfData", "-jar", str(self.jar)]
        if settings is not None:
            command += ["-settings", str(settings)]
        command += ["-ivy", str(module), "-cache", str(cache), "-retrieve", str(pattern)]
        with log.open("wb") as output:
            try:
                run = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_LONGEST_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                output.write(f"\ntimed out after {_LONGEST_SECONDS} s\n".encode())
                return False
        return run.returncode == 0


_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="extentflow" module="local"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""


def _dependency(coordinate: Coordinate, *, conf: str, transitive: bool) -> str:
    return (
        f"<dependency org={quoteattr(coordinate.group)} name={quoteattr(coordinate.artifact)}"
        f" rev={quoteattr(coordinate.version)} conf={quoteattr(conf)}"
        f' transitive="{str(transitive).lower()}">'
    )


def _exact(coordinate: Coordinate) -> str:
    classifier = (
        f" m:classifier={quoteattr(coordinate.classifier)}" if coordinate.classifier else ""
    )
    extension = quoteattr(coordinate.extension)
    return (
        _dependency(coordinate, conf="default->default", transitive=False)
        + f"<artifact name={quoteattr(coordinate.artifact)} type={extension} ext={extension}"
        + f"{classifier}/></dependency>"
    )
