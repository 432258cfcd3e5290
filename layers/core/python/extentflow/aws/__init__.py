"""What clients of AWS's services have in common.

Owns: batches (`batches`), the SDK's failures that say nothing of a service (`failures`). Refuses to
know: any service.
"""
