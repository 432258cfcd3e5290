"""The deployed event path: one CDK stack, composed of small constructs. Synthesis needs no network.

Owns: what is deployed, who may do what, what is checked before anything is deployed. Refuses to
know: what functions do with it; the library is asked for names, shapes and checks, never copied.

    config         a stage's settings, and what is wrong with them
    config_spark   Spark's part of them
    stages         the stages
    project        where code stands
    declared       connectors/*.yaml, checked by the library
    queues         arrivals, extents, their dead letters
    state          the ledger's table
    buckets        what announces objects
    receiver       the HTTP endpoint
    functions      one function and its role
    ingest         all functions, and what wakes them
    grants         one permission and its reason
    findings       findings of cdk-nag that are accepted
    broker         the way to Kafka
    secrets        what settings and connectors refer to
    network        the ways out of a VPC
    rights         what all that deliver may do
    layers         the library, and what it imports
    missing        what has to be built first
    spark          the application of Spark jobs
    connectors     written at deployment, by provider/
    observability  alarms
    stack          all of it
"""
