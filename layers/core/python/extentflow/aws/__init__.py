"""What clients of AWS's services have in common.

Owns: batches (`batches`), what a failed call means (`failures`). Refuses to know: any service.
"""
