"""Emulators of Lambda's event sources and of EMR Serverless, and `serve`, which runs both."""
