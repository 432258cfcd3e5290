"""The deployed event path: one CDK stack per stage, composed of small constructs.

Synthesis needs no network. Names, shapes and checks come from the library; what the functions do
is the subject of `functions/` and `extentflow`.

    config         the settings of a stage, and their checks
    config_spark   the settings of Spark
    stages         the stages
    config_cluster the settings of a cluster that the stack creates
    msk            what a stage's MSK cluster says of itself
    project        paths in the project, or in a folder of one's own
    recipes        build layer, Spark archive and bill of materials
    synthesis      the CDK application of stages
    declared       connectors/*.yaml, validated by the library
    queues         arrivals, extents, and their dead letter queues
    state          the ledger's table
    buckets        buckets and their notifications
    receiver       the HTTP endpoint
    functions      one function and its role
    canary         gradual deployment of their versions
    event_path     all functions and their event sources
    grants         one permission and its reason
    findings       accepted findings of cdk-nag
    broker         permissions on Kafka
    secrets        secrets that settings and connectors refer to
    new_cluster    a cluster of the stack
    network        paths out of the VPC
    rights         permissions that all delivering roles share
    layers         layers of the library and its dependencies
    missing        artifacts that must be built before a deployment
    spark          the EMR Serverless application
    connectors     stored at deployment, by provider/
    alarms         alarms: metrics and thresholds
    dashboard      the dashboard, with the state of all alarms
    plan           what a stage needs of its account, for `extentflow doctor --stage`
    stack          the whole stack
"""
