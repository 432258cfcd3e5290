r"""AWS Glue Schema Registry, and the wire format of AWS's serializers.

A payload begins with the byte 3, the byte 0 or, of a compressed record, 5, and the 16 bytes of the
schema version's id. Glue registers a version first and checks it then:

    register --> PENDING --> AVAILABLE   records may name it
                        \-> FAILURE     the schema's compatibility excludes it
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from extentflow.aws.glue import connect, translated
from extentflow.config.registry import DEFAULT_REGISTRY, RegistryOptions
from extentflow.converters.schema_registry import AVRO, RegisteredSchema
from extentflow.errors import IncompatibleSchema, Misconfigured, RegistryUnavailable
from extentflow.retry import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

Check: TypeAlias = Callable[[socket.socket, str], None]

_HEADER_VERSION, _PLAIN, _ZLIB = b"\3", b"\0", b"\5"
_AVAILABLE, _PENDING = "AVAILABLE", "PENDING"


class _Pending(RegistryUnavailable):
    """Glue has not checked a version yet."""


@dataclass(slots=True)
class GlueRegistry:
    """The registry of one set of options, for schemas of one kind. Subjects are Glue's schemas."""

    options: RegistryOptions
    kind: str = AVRO
    open_client: Callable[[str | None, str | None, Check | None], "GlueClient"] = connect
    # How long Glue may check a version.
    patience: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(total_seconds=60, longest_pause_seconds=2)
    )
    _client: Any = None

    def find(self, subject: str, text: str) -> RegisteredSchema | None:
        """Return the schema `text` if the schema has such a version that Glue accepted."""
        found = self._version_of(subject, text)
        if found is not None and found["Status"] == _PENDING:
            found = self.patience.call(lambda: self._checked(subject, text))
        if found is None or found["Status"] != _AVAILABLE:
            return None
        return self._registered(found["SchemaVersionId"], text)

    def check(self, subject: str, text: str) -> None:
        """Nothing: Glue has no call for it, and checks what is registered."""

    def register(self, subject: str, text: str) -> RegisteredSchema:
        """Make the text the schema's latest version; create the schema if there is none."""
        made = self._register(subject, text)
        if made["Status"] == _AVAILABLE:
            return self._registered(made["SchemaVersionId"], text)
        found = self.find(subject, text) if made["Status"] == _PENDING else None
        if found is None:
            raise self._incompatible(subject, f"its version {made['SchemaVersionId']} failed")
        return found

    def versions(self, subject: str) -> list[str]:
        """Return the texts of the schema's accepted versions of this kind, the newest first."""
        found = self._call(
            subject, lambda client: client.get_schema(SchemaId=self._schema(subject))
        )
        last = 0 if found is None else int(found["LatestSchemaVersion"])
        each = (self._version(subject, {"VersionNumber": one}) for one in range(last, 0, -1))
        # Versions may have been deleted or refused.
        kept = [one for one in each if one is not None and one["Status"] == _AVAILABLE]
        return [str(one["SchemaDefinition"]) for one in kept if self._is_kind(one)]

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of the schema."""
        found = self._version(subject, {"LatestVersion": True})
        if found is None:
            raise IncompatibleSchema(
                f"{self._where} has no schema {subject} yet; register one, or set"
                " use.latest.version=false and auto.register.schemas=true"
            )
        if not self._is_kind(found):
            raise IncompatibleSchema(
                f"{self._where}: the schema {subject} has the data format"
                f" {found.get('DataFormat')}; name the converter of that format, or another schema"
            )
        return self._registered(found["SchemaVersionId"], str(found["SchemaDefinition"]))

    def describe(self) -> str:
        """Return the registry's ARN."""
        registry = {"RegistryName": self.options.registry_name}
        found = self._call("", lambda client: client.get_registry(RegistryId=registry))
        if found is not None:
            return f"AWS Glue: {found['RegistryArn']}"
        if self.options.registry_name != DEFAULT_REGISTRY:
            raise Misconfigured(f"{self._where}: no such registry; create it, or correct its name")
        return f"AWS Glue: {DEFAULT_REGISTRY}, which the first schema creates"

    def _register(self, subject: str, text: str) -> Mapping[str, Any]:
        """Return id and status of the version, of a new schema where there is none."""
        schema = self._schema(subject)

        def register(client: Any) -> Any:  # noqa: ANN401 - as `_call`
            return client.register_schema_version(SchemaId=schema, SchemaDefinition=text)

        made = self._call(subject, register)
        if made is None:
            made = self._create(subject, text)
        if made is None:
            # Another worker created it in between.
            made = self._call(subject, register)
        if made is None:
            raise RegistryUnavailable(f"{self._where}: the schema {subject} comes and goes")
        return made

    def _create(self, subject: str, text: str) -> Mapping[str, Any] | None:
        """Return the first version of a new schema; None if the schema exists."""
        name = self.options.registry_name
        # Glue creates its default registry itself, where none is named.
        registry = {} if name == DEFAULT_REGISTRY else {"RegistryId": {"RegistryName": name}}

        def create(client: Any) -> Any:  # noqa: ANN401 - as `_call`
            try:
                return client.create_schema(
                    **registry,
                    SchemaName=subject,
                    DataFormat=self.kind,
                    Compatibility=self.options.compatibility,
                    SchemaDefinition=text,
                )
            except client.exceptions.AlreadyExistsException:
                return None

        made = self._call(subject, create, missing=False)
        return None if made is None else {**made, "Status": made["SchemaVersionStatus"]}

    def _checked(self, subject: str, text: str) -> Mapping[str, Any] | None:
        found = self._version_of(subject, text)
        if found is not None and found["Status"] == _PENDING:
            raise _Pending(f"{self._where}: a version of the schema {subject} is {_PENDING}")
        return found

    def _version_of(self, subject: str, text: str) -> Mapping[str, Any] | None:
        schema = self._schema(subject)
        return self._call(
            subject,
            lambda client: client.get_schema_by_definition(SchemaId=schema, SchemaDefinition=text),
        )

    def _version(self, subject: str, number: Mapping[str, Any]) -> Mapping[str, Any] | None:
        schema = self._schema(subject)
        return self._call(
            subject,
            lambda client: client.get_schema_version(SchemaId=schema, SchemaVersionNumber=number),
        )

    def _is_kind(self, found: Mapping[str, Any]) -> bool:
        return bool(found.get("DataFormat", self.kind) == self.kind)

    def _schema(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self.options.registry_name, "SchemaName": subject}

    @property
    def _where(self) -> str:
        return f"AWS Glue, registry {self.options.registry_name}"

    def _registered(self, version: str, text: str) -> RegisteredSchema:
        try:
            number = UUID(version)
        except ValueError as exc:
            raise Misconfigured(
                f"{self._where}: it answered with the version id {version!r}; correct endpoint"
            ) from exc
        compressed = self.options.compression == "ZLIB"
        prefix = _HEADER_VERSION + (_ZLIB if compressed else _PLAIN) + number.bytes
        return RegisteredSchema(str(number), text, prefix, is_compressed=compressed)

    def _incompatible(self, subject: str, why: str) -> IncompatibleSchema:
        return IncompatibleSchema(
            f"{self._where} refuses the schema for {subject}: {why}; change the columns by"
            " transforms, the schema's compatibility, or the topic"
        )

    def _call(
        self,
        subject: str,
        call: Callable[[Any], Any],
        *,
        missing: bool = True,
    ) -> Mapping[str, Any] | None:
        """Return the response; None where there is no such entity, if that may be `missing`."""
        about = f"{self._where}, schema {subject}" if subject else self._where
        with translated(about):
            if self._client is None:
                options, rule = self.options, self.options.hosts
                check = None if rule is None else rule.check
                self._client = self.open_client(options.region, options.endpoint, check)
            client = self._client
            try:
                found: Mapping[str, Any] | None = call(client)
            except client.exceptions.EntityNotFoundException:
                if missing:
                    return None
                raise
            except client.exceptions.InvalidInputException as exc:
                raise self._incompatible(subject, str(exc)) from exc
        return found


def open_glue(options: RegistryOptions, kind: str) -> GlueRegistry:
    """Return a client of a registry, with the credentials of this process."""
    return GlueRegistry(options, kind)
