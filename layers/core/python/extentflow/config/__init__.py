"""Reads flat maps of dotted keys: connectors, worker settings, options of the Spark data source.

    table      keys declared on dataclass fields; finds every problem of a flat map at once
    types      the types of values: text to value and back
    connector  the keys of connectors, with `columns`
    parsing    reads connectors and checks the rules between their keys
    worker     the settings of workers
    specs      the registered formats, converters and stores, against which connectors are checked
    kafka      the Kafka client properties that may be set, and why the others may not
    secrets    references such as `${env:NAME}`, as in Kafka Connect
    files      .properties, JSON and YAML files as flat maps

Connectors are stored by `ledger`; what a value means is up to the package that uses it.
"""
