"""Credentials from AWS: secrets in Secrets Manager and signed tokens for MSK.

Where a connector refers to them is the subject of `extentflow.config`.
"""
