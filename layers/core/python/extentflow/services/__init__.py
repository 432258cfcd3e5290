"""The use cases of extentflow as typed calls: connectors, deliveries, jobs, and the stack's health.

The command line and the Python API call these services and render what they return; services print
nothing and never end the process. `extentflow.wiring` makes clients, engines and adapters. The
texts of a run's notes are in `run_notes`. Servers for development are another package,
`extentflow_local.stack.servers`.
"""
