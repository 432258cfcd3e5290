"""The use cases of extentflow as typed calls: connectors, deliveries, jobs, and the stack's health.

The command line and the Python API call these services and render what they return; services print
nothing and never end the process. `extentflow.wiring` makes clients, engines and adapters.
"""
