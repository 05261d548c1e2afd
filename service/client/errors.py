"""What can go wrong between a client and the service."""

from __future__ import annotations

import httpx

from service.http.schemas import Problem


class ClientError(Exception):
    """The service could not do what it was asked; the message is for people."""


class UnreachableError(ClientError):
    """No answer: nothing listens there, or the connection broke or took too long."""

    named_by = "--url or ELECTRA_URL"
    """How the command line is told of another address."""


class SlowAnswerError(ClientError):
    """The service is there and took the request, and its answer was not waited for any longer."""


class UnexpectedAnswerError(ClientError):
    """An answer that is not this service's: another program's, or another version's."""


class ApiError(ClientError):
    """The service refused, and said why."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.status = problem.status
        self.code = problem.code
        super().__init__(problem.detail or problem.title)


def is_passing(error: Exception) -> bool:
    """Whether a stream may be there again in a moment."""
    if isinstance(error, ApiError):
        return error.status == httpx.codes.SERVICE_UNAVAILABLE
    return isinstance(error, UnreachableError)
