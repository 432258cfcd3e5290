"""The event path on one machine: the real functions behind the SQS server, an HTTP port, a clock.

Owns: what Lambda, its event source mappings, API Gateway and EventBridge would do. Refuses to know:
what functions do; where servers run.

    template   a CloudFormation template -> deployment    names, resources, intrinsics, triggers
    mapping    queue -> function, batches, what is deleted sqs_events
    front      HTTP -> function                            http_events, routes
    schedule   time -> function
    patterns   event of AWS -> function; whoever stands for the service tells `hear`
    pool       a function's environments                   execution, runtime_api, serving
    source     all of it, from start to stop

    around = Surroundings(sqs=stack.endpoint("sqs"), environment=stack.environment())
    place = Place(directory=logs, functions=Path("functions"), layers=[Path("layers/core/python")])
    with EventSource(read_template(template, around), place) as source:
        source.deployment.outputs["ArrivalsQueueUrl"], source.url, source.trigger("reconciler")
"""
