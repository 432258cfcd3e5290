"""Reads flat maps of dotted keys: connector configuration, worker settings, data source options.

The package holds what these have in common. The keys of a connector are declared in `connectors`,
and what a value means is up to the package that uses it.

    types      the types of values: text to value and back
    table      keys with default, aliases and condition; finds every problem of a flat map at once
    secrets    references such as `${env:NAME}`, as in Kafka Connect
    files      .properties, JSON and YAML files as flat maps
    wording    how messages quote names and values
    kafka      the Kafka client properties that may be set, and why the others may not
    reference  renders a table of keys as Markdown
"""

from extentflow.config.files import load, parse_text, read_if_present
from extentflow.config.secrets import Reference, environments, resolve
from extentflow.config.table import (
    Alias,
    Family,
    Group,
    Key,
    Only,
    Reading,
    Rule,
    Table,
    broken,
)
from extentflow.config.wording import nearest, plain

__all__ = [
    "Alias",
    "Family",
    "Group",
    "Key",
    "Only",
    "Reading",
    "Reference",
    "Rule",
    "Table",
    "broken",
    "environments",
    "load",
    "nearest",
    "parse_text",
    "plain",
    "read_if_present",
    "resolve",
]
