"""The two queues of the event path, each with its dead letter queue.

Owns: how long messages are kept, hidden and tried. Refuses to know: who sends and who reads.

    arrivals ──planner──> extents ──worker──> Kafka
       └─> arrivals-dlq      └─> extents-dlq         kept for 14 days, then gone
"""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.grants import Grant

KEPT = Duration.days(4)
DEAD_KEPT = Duration.days(14)
# Just above the functions' 170 s, so that what a crash left behind comes again soon; workers renew
# it while an extent is in work. AWS recommends six times the function's time, for batches that
# Lambda received and could not hand over. Their messages come twice here, which the ledger absorbs,
# and the mappings' concurrency keeps them rare; whereas every message of a planner that died, or
# had no time left for it, would wait for 17 minutes.
HIDDEN_SECONDS = 180
# A fuse only: whether an extent is given up is decided by the ledger's attempts.
MOST_RECEIVES = 100


class WorkQueue(Construct):
    """A queue and its dead letter queue, encrypted, reached by TLS only."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.dead = sqs.Queue(
            self,
            "Dead",
            retention_period=DEAD_KEPT,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            retention_period=KEPT,
            visibility_timeout=Duration.seconds(HIDDEN_SECONDS),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead, max_receive_count=MOST_RECEIVES),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )


def take(queue: sqs.IQueue) -> Grant:
    """Return leave for Lambda to hand a function the queue's messages."""
    return Grant(
        "TakeMessages",
        "Lambda receives messages in the function's name, and deletes those that are over",
        ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
        (queue.queue_arn,),
    )


def hide(queue: sqs.IQueue) -> Grant:
    """Return leave to say when a message comes back."""
    return Grant(
        "HideMessages",
        "a message stays hidden while its extent is in work, and waits while it cannot be",
        ("sqs:ChangeMessageVisibility",),
        (queue.queue_arn,),
    )


def look(queue: sqs.IQueue) -> Grant:
    """Return leave to ask how much a queue holds."""
    return Grant(
        "LookAtQueue",
        "nothing is lost while messages wait, so that patience is greater then",
        ("sqs:GetQueueAttributes",),
        (queue.queue_arn,),
    )


def send(grant_id: str, why: str, *queues: sqs.IQueue) -> Grant:
    """Return leave to send messages."""
    return Grant(grant_id, why, ("sqs:SendMessage",), tuple(queue.queue_arn for queue in queues))
