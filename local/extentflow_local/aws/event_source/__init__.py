"""The event path on one machine: the real functions, with emulations of their event sources.

Emulates Lambda, its event source mappings, API Gateway, and schedules and rules of EventBridge.

    template   a CloudFormation template -> deployment    names, resources, intrinsics, triggers
    mapping    queue -> function: batches, deletion       sqs_events
    front      HTTP -> function                            http_events, routes
    schedule   time -> function
    patterns   event of AWS -> function, by `EventSource.receive_event`
    pool       a function's environments                   execution, runtime_api, serving
    source     all of it, from start to stop

    context = TemplateContext(sqs=stack.endpoint("sqs"), environment=stack.environment())
    place = Place(directory=logs, functions=Path("functions"), layers=[Path("layers/core/python")])
    with EventSource(read_template(template, context), place) as source:
        source.deployment.outputs["ArrivalsQueueUrl"], source.url, source.trigger("reconciler")
"""
