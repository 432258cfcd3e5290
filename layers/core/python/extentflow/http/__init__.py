"""A small HTTP server with limits, and its requests and responses.

The receiver of notifications, the metrics page and the local emulators of AWS use it.
"""
