"""A port for the coordinator of a job, which no other program can get meanwhile."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yields a free port of this machine, and holds it until the block ends.

    The coordinator's server (gRPC) binds the port next to it, because both set SO_REUSEPORT. Nobody
    listens on the socket here, so the server gets all connections.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("localhost", 0))
        yield held.getsockname()[1]
