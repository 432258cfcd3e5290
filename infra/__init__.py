"""The deployed event path: one CDK stack, composed of small constructs. Synthesis needs no network.

Owns: what is deployed, who may do what, what is checked before anything is deployed. Refuses to
know: what functions do with it; the library is asked for names, shapes and checks, never copied.

    config         a stage's typed settings, and what is wrong with them     stages  the stages
    declared       connectors/*.yaml, checked by the library
    state          the ledger's table            queues        arrivals, extents, their dead letters
    arrivals       buckets, the HTTP endpoint    ingest        functions and what wakes them
    functions      one function, its role        layers        the library and what it imports
    broker         the way to Kafka              network       the ways out of a VPC
    grants         one permission and its reason observability alarms
    provider/      runs at deployment: writes connectors into the ledger
    stack          all of it
"""
