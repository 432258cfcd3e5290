"""The two queues of the event path, each with its dead letter queue.

arrivals ──planner──> extents ──worker──> Kafka
└─> arrivals-dlq      └─> extents-dlq         messages expire after 14 days

All are standard queues: in a FIFO queue the groups of messages would block, in these they share.
"""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from .encryption import encrypt_queue
from .grants import Grant

KEPT = Duration.days(4)
DEAD_KEPT = Duration.days(14)
# Just above the functions' 170 s, so that a message returns soon after a crash; workers renew it
# while an extent is in work. AWS recommends six times the function's time, for batches that
# Lambda received and could not pass on. Here such messages arrive twice, which the ledger absorbs,
# and the limited concurrency keeps them rare; with six times the timeout, every message of a
# planner
# that died or ran out of time would wait for 17 minutes.
HIDDEN_SECONDS = 180
# A safety limit only: the attempts in the ledger decide when an extent fails.
MOST_RECEIVES = 100


class WorkQueue(Construct):
    """A queue and its dead letter queue, encrypted, reachable by TLS only."""

    def __init__(self, scope: Construct, construct_id: str, *, key_arn: str | None = None) -> None:
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
        for queue in (self.dead, self.queue):
            encrypt_queue(queue, key_arn)


def receive(queue: sqs.IQueue) -> Grant:
    """Return permission for Lambda to poll the queue for a function."""
    return Grant(
        "TakeMessages",
        "Lambda receives messages with the function's role, and deletes processed ones",
        ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
        (queue.queue_arn,),
    )


def change_visibility(queue: sqs.IQueue) -> Grant:
    """Return permission to change the visibility of messages."""
    return Grant(
        "HideMessages",
        "a message stays hidden while its extent is in work or must wait",
        ("sqs:ChangeMessageVisibility",),
        (queue.queue_arn,),
    )


def read_depth(queue: sqs.IQueue) -> Grant:
    """Return permission to read the depth of the queue."""
    return Grant(
        "LookAtQueue",
        "while messages wait, jobs are not stalled, so thresholds are higher",
        ("sqs:GetQueueAttributes",),
        (queue.queue_arn,),
    )


def send(grant_id: str, why: str, *queues: sqs.IQueue) -> Grant:
    """Return permission to send messages."""
    return Grant(grant_id, why, ("sqs:SendMessage",), tuple(queue.queue_arn for queue in queues))
