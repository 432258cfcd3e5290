"""Reads flat maps of dotted keys: connectors, worker settings, options of the Spark data source.

    connector_keys    the keys of connectors, with `connector`, `column_lists`, `columnar`,
                      `envelope`, `registry` and `steps`
    connector_rules   rules between several keys of a connector
    parsing           reads connectors and checks their keys and rules
    worker            the settings of processes, with `ledgers` for their URLs
    kafka_properties  which properties of Kafka clients users may set, and why not the others;
                      the defaults and fixed values are in `kafka.settings`
    specs             the registered formats, converters and stores that connectors name
    table, types      keys declared on dataclass fields, and the types of their values
    secrets           references such as `${env:NAME}`, as in Kafka Connect
    files             .properties, JSON and YAML files as flat maps
    store_access      the keys for S3, as options of the commands that write to it

Connectors are stored by `ledger`; what a value means is up to the package that uses it.
"""
