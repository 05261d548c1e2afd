"""A typed client of the service, for programs and for the command line.

`connection` sends, repeats and refuses; each of the other modules has the calls of one kind.
"""

from service.client.access import AccessCalls
from service.client.errors import ApiError, ClientError, SlowAnswerError, UnexpectedAnswerError, UnreachableError
from service.client.events import FollowedEvent
from service.client.jobs import JobCalls
from service.client.life import LifeCalls
from service.client.logs import LogCalls, LogLine
from service.client.models import PREDICT_TIMEOUT_SECONDS, ModelCalls
from service.client.queue import QueueCalls
from service.client.shelf import ShelfCalls
from service.client.webhooks import WebhookCalls

__all__ = [
    "PREDICT_TIMEOUT_SECONDS",
    "ApiError",
    "ClientError",
    "ElectraClient",
    "FollowedEvent",
    "LogLine",
    "SlowAnswerError",
    "UnexpectedAnswerError",
    "UnreachableError",
]


class ElectraClient(JobCalls, LifeCalls, LogCalls, ModelCalls, AccessCalls, QueueCalls, ShelfCalls, WebhookCalls):
    """The service at one address. Calls that change nothing twice are repeated when the connection fails.

    Raises from every method:
        UnreachableError: no answer.
        ApiError: the service refused.
    """
