"""Tables of dotted settings: what a key is called, what it may hold, what it means.

Owns: the machinery that connector configuration and worker settings share. Refuses to know: any
particular key.

    kinds      what one value may be, both ways between text and type
    table      names, defaults, aliases, applicability; every problem of a flat map at once
    providers  `${env:NAME}` and the like: secrets by reference, as Connect writes them
    files      .properties, JSON and YAML as flat maps
    messages   how names and values stand in messages
    kafka      which properties of the Kafka client may be passed through, and why not the others
    page       a table as Markdown
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
