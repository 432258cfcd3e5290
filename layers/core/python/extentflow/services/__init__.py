"""The use cases of extentflow as typed calls: connectors, deliveries, jobs, and the stack's health.

The command line, the Python API and any other front end call these services and render what they
return. Services print nothing and never end the process. Clients, engines and adapters are the
responsibility of `extentflow.wiring`.
"""
