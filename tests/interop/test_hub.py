"""What is pushed to the hub: a local stand-in gets the files; what it refuses is told."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bertjax.base.errors import InputError
from bertjax.interop import transformers_check
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.programs import convert

TOKEN = "hf_local"


class Hub(BaseHTTPRequestHandler):
    """The requests of an upload; files are in `files` of the server."""

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        self._answer({"name": "me", "type": "user"} if allowed else {"error": "no"}, allowed)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        address = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            self.server.names.append(json.loads(body)["name"])
            self._answer({"url": f"{address}/me/moo"})
        elif self.path == "/api/validate-yaml":  # of the card
            self._answer({})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            self._answer({"files": [{"path": each["path"], **modes} for each in files]})
        else:
            for line in body.splitlines():
                operation = json.loads(line)
                if operation["key"] == "file":
                    value = operation["value"]
                    self.server.files[value["path"]] = base64.b64decode(value["content"])
            commit = {"commitOid": "0" * 40, "commitUrl": f"{address}/me/moo/commit/0"}
            self._answer({"success": True, **commit, "hookOutput": ""})

    def _answer(self, answer: dict, allowed: bool = True) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """Nothing is printed."""


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.names = {}, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_folder_is_pushed(make_pretrained, hub, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(transformers_check, "knows", lambda _: False)  # it takes long
    write_hugging_face(make_pretrained(), tmp_path)
    convert.run(f"hf:{tmp_path}", f"hf:{tmp_path / 'out'}", push="me/moo")
    written = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert hub.files == written and {"README.md", "model.safetensors"} < set(written)
    assert hub.names == ["moo"]
    assert "pushed: http://127.0.0.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "token, name, message",
    [
        ("", "me/moo", "--push=me/moo: no token of the hub: .*set HF_TOKEN"),
        ("hf_other", "me/moo", "--push=me/moo: the hub refuses the token: "),
        (TOKEN, "me/moo/baa", "--push=me/moo/baa: Repo id must be in the form"),
    ],
)
def test_what_cannot_be_pushed(make_pretrained, hub, monkeypatch, tmp_path, token, name, message):
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "none"))
    write_hugging_face(make_pretrained(), tmp_path)
    with pytest.raises(InputError, match=message):
        convert.run(f"hf:{tmp_path}", f"hf:{tmp_path / 'out'}", push=name)
    assert not (tmp_path / "out").exists()


def test_without_a_network(make_pretrained, hub, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    write_hugging_face(make_pretrained(), tmp_path)
    with pytest.raises(InputError, match="--push=me/moo: the hub cannot be reached: "):
        convert.run(f"hf:{tmp_path}", f"hf:{tmp_path / 'out'}", push="me/moo")
