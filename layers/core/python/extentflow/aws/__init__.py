"""What clients of AWS's services have in common.

Owns: batches (`batches`), what a failed call means (`failures`), a log without secrets (`logs`),
sessions (`sessions`). Refuses to know: any service.
"""

from extentflow.aws.logs import keep_secrets

# Whoever makes a client of AWS's imports something of this room.
keep_secrets()
