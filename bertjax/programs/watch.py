"""Writes a page of HTML about runs or studies, and serves it while they go on."""

import glob
import http.server
import re
import threading
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, local_folder
from bertjax.inference.blanks import fill
from bertjax.inference.features.attention_maps import attention_maps
from bertjax.lab.pages import model
from bertjax.lab.pages.folder import sections, state_of
from bertjax.lab.pages.metrics import STEPS
from bertjax.lab.pages.page import Section, page
from bertjax.runs.source import open_model

PAGE = "watch.html"
_MOST_TOKENS = 64  # of a text whose attention is shown
_SECONDS = 5.0  # between two looks of a served page
_HERE = "127.0.0.1"
_OUR_NAMES = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE)


def run(
    names: Sequence[str],
    texts: Sequence[str] = (),
    port: int | None = None,
    over: str = STEPS,
) -> None:
    """Writes RUN/watch.html; of several folders, watch.html next to the first.

    Args:
      names: folders of runs or studies, also as patterns of files.
      port: where to serve the page of this machine, which is made anew when a file of the folders
        has changed; 0: any that is free; None: it is not served.
      over: what the curves are over: "steps", "minutes" or "tokens".

    Raises:
      InputError: a folder that is no run; a damaged file; a text that is too long; a port in use.
    """
    watched = _Watched(_folders(names), texts, over)
    if port is None:
        watched.write(renews=0.0)
        print(f"{watched.path}: open it in a browser")
        return
    with _server(watched, port) as server:
        print(f"http://{_HERE}:{server.server_port}: until Ctrl-C", flush=True)
        server.serve_forever()


def _server(watched: "_Watched", port: int) -> http.server.ThreadingHTTPServer:
    """A server of the page, which has been made once, so that errors come before it begins."""
    wrong = (OSError, OverflowError)
    with input_error_at(f"--port={port}: cannot be used", wrong, "choose another"):
        server = http.server.ThreadingHTTPServer((_HERE, port), partial(_Handler, watched))
    watched.write(renews=_SECONDS)
    return server


def _folders(names: Sequence[str]) -> list[Path]:
    found = []
    for name in names:
        folder = local_folder(name)
        matching = [folder] if folder.exists() else sorted(map(Path, glob.glob(name)))
        if not matching:
            raise InputError(f"{name}: no such folder")
        found += [path for path in matching if path.is_dir() or len(matching) == 1]
    if not found:
        raise InputError("name a run: bertjax watch RUN, or several: bertjax watch 'runs/*'")
    return list(dict.fromkeys(found))


class _Watched:
    """Folders, their newest page, the file of it, and the state that it was made from."""

    def __init__(self, folders: Sequence[Path], texts: Sequence[str], over: str = STEPS):
        first = folders[0]
        self.path = (first if len(folders) == 1 else first.parent) / PAGE
        self.text = self.state = ""
        self._folders, self._over = folders, over
        self._title = ", ".join(folder.resolve().name for folder in folders[:3])
        self._title += f" and {len(folders) - 3} more" * (len(folders) > 3)
        self._shown: list[Section] = []
        self._tokens: list[list[str]] = []
        self._writing = threading.Lock()
        if texts:
            self._show(texts)

    def _show(self, texts: Sequence[str]) -> None:
        if len(self._folders) > 1:
            raise InputError("--text: there are several folders: name one run")
        pretrained = open_model(str(self._folders[0]))
        maps = [attention_maps(pretrained, text, _MOST_TOKENS) for text in texts]
        self._tokens = [each.tokens for each in maps]
        guess = partial(fill, pretrained, top=model.GUESSES)
        for number, (text, each) in enumerate(zip(texts, maps, strict=True)):
            content = [model.attention(each, number), *model.guesses(text, guess)]
            self._shown.append(Section(text, content))

    def write(self, renews: float) -> None:
        """Makes the page and writes its file, if a file of the folders has changed."""
        with self._writing:
            state = state_of(self._folders)
            if state == self.state:
                return
            found = [*sections(self._folders, self._over), *self._shown]
            self.text = page(self._title, found, texts=self._tokens, state=state, renews=renews)
            with atomic_write(self.path, "w") as file:
                file.write(self.text)
            self.state = state


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers only who asks by a name of this machine, against other sites' DNS rebinding."""

    def __init__(self, watched: _Watched, *arguments: object):
        self._watched = watched
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answers GET / and GET /state."""
        if not _OUR_NAMES.fullmatch(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN, f"open http://{_HERE} or http://localhost")
            return
        if self.path not in ("/", "/state"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            self._watched.write(renews=_SECONDS)
        except InputError as error:
            print(f"{error}", flush=True)
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))
            return
        if self.path == "/state":
            self._answer(HTTPStatus.OK, "text/plain", self._watched.state)
        else:
            self._answer(HTTPStatus.OK, "text/html", self._watched.text)

    def _answer(self, status: HTTPStatus, content_type: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Prints nothing for each answer."""
