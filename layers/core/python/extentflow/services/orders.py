"""Orders of deliveries: a connector's configuration, its revision, and the addresses.

    stored   `-c NAME`          the latest revision of a connector that a person stored
    made     ADDRESS --topic    a connector that a command made of the address and its options

An object that one address of a bucket delivered is known to its other addresses, because the
connectors that are made of them share one name. Once such a connector is stored, its name stays
with what it reads then. Other addresses of the bucket get a name of their own:

    of what the stored one reads      the stored one delivers
    of that and more                  --save lets the stored one read more; else another name
    of something else                 another name

Jobs of other names, and of folders above and below, count as those of the address all the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.ledger import ConnectorVersion, Ledger, last_stored
from extentflow.services.addressed import (
    COVERAGE,
    AddressedConnector,
    place_begins,
    without_coverage,
)
from extentflow.services.places import (
    described_command,
    described_source,
    overlapping,
    place_of,
    same_objects,
)


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """Objects of a stored connector; without addresses, all that it reads."""

    config: ConnectorConfig
    revision: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeOrder:
    """Objects of a connector that a command made, with its settings as the ledger has them.

    `stored`: a person stored the connector as well.
    """

    config: ConnectorConfig
    revision: int
    addresses: tuple[str, ...]
    settings: Mapping[str, str]
    stored: bool = False

    @property
    def shown(self) -> str:
        """The settings, as a file of properties has them.

        Those last that the revision lacks, as it is that of all addresses of the bucket.
        """
        shared = self.settings if self.stored else without_coverage(self.settings)
        own = {key: text for key, text in self.settings.items() if key not in shared}
        alone = f"; this command alone has {_properties(own)}" if own else ""
        return f"{_properties(shared)}{alone}"

    @property
    def reads(self) -> str:
        """What the connector reads, in words."""
        only = "only " if self.config.object_key else "everything below "
        return f"{only}{KeyScope.of(self.config).source}"


Order: TypeAlias = StoredOrder | MadeOrder


def _properties(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={text}" for key, text in settings.items() if key != "name")


@dataclass(frozen=True, slots=True)
class Orders:
    """Makes orders from a ledger's connectors; `cluster` returns the Kafka cluster's id.

    `look` raises where the bucket or the folder of a connector cannot be read.
    """

    ledger: Ledger
    connectors: ConnectorCatalogue
    cluster: Callable[[], str]
    look: Callable[[ConnectorConfig], object] = lambda _config: None

    def stored(
        self, name: str, addresses: Sequence[str] = (), *, deleted: bool = False
    ) -> StoredOrder:
        """Return an order of a connector's latest revision; Misconfigured: there is none.

        `deleted`: also of one that was deleted, or that a command made and did not save.
        """
        config, revision = self.connectors.latest(name, deleted=deleted)
        return StoredOrder(config, revision, tuple(addresses))

    def store(
        self, made: AddressedConnector, *, save: bool, notify: Callable[[str], object]
    ) -> MadeOrder:
        """Store a connector's revision, which jobs pin; with `save` also for later commands.

        Without `save` the connector is not listed: functions and streaming queries ignore it, and
        the revision is the same for all addresses of its bucket. Raises Misconfigured where a
        person stored a connector of that name with other settings.
        """
        stored = self.ledger.connectors
        made = self._for_cluster(made)
        listed = self._listed(made.name)
        if listed is not None and not made.named and not listed.may_read(made, save=save):
            made = made.distinguished_by(made.place)
            listed = self._listed(made.name)
        if listed is None:
            self._require_same_objects(made)
        for line in self._overlaps(made, save=save):
            notify(line)
        if listed is not None:
            if listed.config is not None and listed.reads_for(made):
                version = listed.version
                return MadeOrder(
                    listed.config, version.revision, made.addresses, version.config, stored=True
                )
            if not (save and listed.is_within(made)):
                raise listed.refusal(made)
        if save:
            self.look(made.config)  # a connector that stays must not be that of a mistyped name
            revision = stored.put(made.name, made.settings).revision
            self.connectors.expect(made.config, revision, made.settings)
            return MadeOrder(made.config, revision, made.addresses, made.settings, stored=True)
        if stored.get(made.name, 1) is None:
            self.look(made.config)  # else `connectors list --all` shows each mistyped bucket
        config, settings = made.of_bucket()
        revision = stored.put(made.name, settings, listed=False).revision
        self.connectors.expect(config, revision, settings)
        return MadeOrder(config, revision, made.addresses, made.settings)

    def expect(self, made: AddressedConnector) -> MadeOrder:
        """Return the order that `store` would return without `save`; nothing is stored."""
        made = self._for_cluster(made)
        config, settings = made.of_bucket()
        latest = last_stored(self.ledger.connectors, made.name)
        revision = 1 if latest is None else latest.revision
        if latest is not None and latest.config != settings:
            revision += 1
        self.connectors.expect(config, revision, settings)
        return MadeOrder(config, revision, made.addresses, made.settings)

    def compare(self, made: AddressedConnector) -> MadeOrder:
        """Return an order for reading objects, of a revision that only this process has.

        Nothing is stored. Raises Misconfigured where a person stored a connector of that name, with
        settings other than those of columnar values that differ.
        """

        def others(config: Mapping[str, str]) -> dict[str, str]:
            own = without_coverage(config)
            return {key: text for key, text in own.items() if not key.startswith("columnar.")}

        listed = None if made.named else self.ledger.connectors.get(made.name)
        if listed is not None and others(listed.config) != others(made.settings):
            raise Misconfigured(
                f"connector {made.name} is stored with other settings (`extentflow connectors show"
                f" {made.name}`); use -c {made.name}, which has these, or --set name=NAME"
            )
        self.connectors.expect(made.config, 0, made.settings)
        return MadeOrder(made.config, 0, made.addresses, made.settings)

    def _for_cluster(self, made: AddressedConnector) -> AddressedConnector:
        """Return the connector; under another name where its jobs deliver to another cluster.

        What one Kafka cluster got is not delivered to another one.
        """
        job = None if made.named else next(iter(self.ledger.jobs.list(made.name)), None)
        if job is None or job.cluster == (cluster := self.cluster()):
            return made
        return made.distinguished_by(cluster)

    def _listed(self, name: str) -> "_ListedConnector | None":
        version = self.ledger.connectors.get(name)
        if version is None:
            return None
        for _, config in self.connectors.readable([version]):
            return _ListedConnector(version, config, place_of(config))
        return _ListedConnector(version, None, "")

    def _require_same_objects(self, made: AddressedConnector) -> None:
        """Raise Misconfigured where jobs of a deleted connector of that name are of other objects.

        What it delivered, from elsewhere or to another topic, would count as delivered.
        """
        before = last_stored(self.ledger.connectors, made.name)
        if before is None:
            return
        # None: another release stored it, whose jobs cannot be compared.
        if not any(same_objects(made.config, old) for _, old in self.connectors.readable([before])):
            raise Misconfigured(
                f"connector {made.name} was deleted, and may have delivered other objects, or to"
                f" another topic (`extentflow status -c {made.name}`); --set name=NAME makes a"
                " connector of its own"
            )

    def _overlaps(self, made: AddressedConnector, *, save: bool) -> Iterator[str]:
        """Yield a line for each connector through which records reach the same topic twice.

        This command delivers no object that another connector delivered; a stored one does.
        """
        ledger = self.ledger
        places = () if save else tuple(map(place_begins, made.addresses))
        known = self.connectors.readable(ledger.connectors.list(deleted=True))
        for version, other in overlapping(made.config, known, places):
            if (listed := ledger.connectors.get(other.name)) is not None:
                yield (
                    f"connector {other.name} reads {described_source(listed.config)} into the same"
                    " topic: a later run of that one delivers again what this command delivers;"
                    f" `extentflow run ADDRESS -c {other.name}` delivers with it instead"
                )
            # One that is not listed delivers nothing by itself.
            elif save and next(iter(ledger.jobs.list(version.name)), None) is not None:
                yield (
                    f"connector {other.name}, which {described_command(version.config)} made or"
                    " which was deleted, delivered from there into the same topic:"
                    f" `run -c {made.name}` and `stream` deliver those objects a second time"
                )


@dataclass(frozen=True, slots=True)
class _ListedConnector:
    """A connector that a person stored, and what its objects begin with.

    `config` is None where another release stored it.
    """

    version: ConnectorVersion
    config: ConnectorConfig | None
    place: str

    def may_read(self, made: AddressedConnector, *, save: bool) -> bool:
        """Return whether the connector reads what was made, or may do so once it is saved."""
        within = self.config is None or made.place.startswith(self.place)
        return within or (save and self.is_within(made))

    def is_within(self, made: AddressedConnector) -> bool:
        """Return whether the connector reads nothing that was not made."""
        return self.config is None or self.place.startswith(made.place)

    def reads_for(self, made: AddressedConnector) -> bool:
        """Return whether the connector reads what was made, with the same settings."""

        def others(config: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in config.items() if key not in COVERAGE}

        same = others(self.version.config) == others(made.settings)
        return same and self.may_read(made, save=False)

    def refusal(self, made: AddressedConnector) -> Misconfigured:
        """Return the error for a connector of that name with other settings."""
        next_revision = ", --save stores these as its next revision" if self.is_within(made) else ""
        return Misconfigured(
            f"connector {made.name} is stored with other settings (`extentflow connectors show "
            f"{made.name}`); `extentflow run ADDRESS -c {made.name}` delivers with those"
            f"{next_revision}, --set name=NAME makes another connector"
        )
