"""A server for the page on this machine. The page can then evaluate elites again.

The server listens on the loopback address only. Its address holds a random token, and it rejects requests
with the name of another host, so that no other page can reach it. A request is two or three integers. Nothing
in it is executed or used as a file name.
"""

from __future__ import annotations

import contextlib
import http
import io
import json
import secrets
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from elites.errors import ElitesError, describe_error
from elites.explorer.blocks import Blocks
from elites.explorer.content import Content
from elites.explorer.gaits import describe_new_episode
from elites.explorer.page import as_json

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 1000
EVALUATE, PARAMETERS = "evaluate", "parameters"  # the last part of the address of a request


class ChosenElite(Struct, frozen=True, forbid_unknown_fields=True):
    """An elite of a run."""

    run: Annotated[int, Meta(ge=0, lt=2**31)]
    elite: Annotated[int, Meta(ge=0, lt=2**31)]


class Request(ChosenElite, frozen=True, forbid_unknown_fields=True):
    """An elite of a run, and the seed of the episode."""

    seed: Annotated[int, Meta(ge=0, lt=2**32)]


class Evaluations:
    """Evaluates elites again, one at a time, and returns their parameters."""

    def __init__(self, contents: Sequence[Content]) -> None:
        self._contents = contents
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        self._evaluators: dict[int, tuple[Any, Any]] = {}

    def __call__(self, request: Request) -> dict[str, Any]:
        """Fitness, descriptor and length of the episode, and the movement if the task has a robot."""
        content = self._content(request)
        with self._lock:
            task, evaluator = self._evaluator(request.run)
            parameters = content.archive.parameters[request.elite : request.elite + 1]
            evaluation = evaluator.evaluate(parameters, np.array([request.seed]))
            blocks = Blocks()
            movement = describe_new_episode(content, task, request.elite, request.seed, blocks)
        return {
            "seed": request.seed,
            "fitness": float(evaluation.fitness[0]),
            "descriptor": np.asarray(evaluation.descriptor[0], float).tolist(),
            "length": int(evaluation.length[0]),
            "movement": movement,
            "block": blocks.text(),
        }

    def parameters(self, chosen: ChosenElite) -> bytes:
        """The parameters of an elite, as a NumPy file."""
        content = self._content(chosen)
        content.archive.require_parameters(content.path)
        file = io.BytesIO()
        np.save(file, content.archive.parameters[chosen.elite])
        return file.getvalue()

    def _content(self, chosen: ChosenElite) -> Content:
        if chosen.run >= len(self._contents):
            raise ElitesError(f"run is {chosen.run}; it must be below {len(self._contents)}")
        content = self._contents[chosen.run]
        if chosen.elite >= len(content.archive.fitness):
            raise ElitesError(f"elite is {chosen.elite}; it must be below {len(content.archive.fitness)}")
        return content

    def _evaluator(self, run: int) -> tuple[Any, Any]:
        if run not in self._evaluators:
            from elites.evaluation import make_evaluator
            from elites.tasks.in_memory import make_recorded_task

            content = self._contents[run]
            content.archive.require_parameters(content.path)
            if content.record is None:
                raise ElitesError(f"{content.path} is not the folder of a run; its task is not known")
            task = make_recorded_task(content.path, content.record.task, content.record.task_parameters)
            hidden = tuple(int(width) for width in content.archive.policy_sizes[1:-1])
            evaluator = make_evaluator(task, hidden, None, physics=content.record.physics)
            self._evaluators[run] = task, self._open.enter_context(evaluator)
        return self._evaluators[run]

    def close(self) -> None:
        self._open.close()


class Server(ThreadingHTTPServer):
    """Serves one page at `address`, and executes its requests."""

    daemon_threads = True

    def __init__(self, page: str, evaluations: Evaluations, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.page, self.evaluations, self.token = page.encode(), evaluations, secrets.token_urlsafe(24)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "elites", ""

    def do_GET(self) -> None:
        if self._allowed(""):
            self._send_answer(http.HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:
        saves = self.path.endswith(f"/{PARAMETERS}")
        if not self._allowed(PARAMETERS if saves else EVALUATE):
            return None
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_REQUEST_BYTES:
            return self._send_error(
                http.HTTPStatus.BAD_REQUEST, f"a request has at most {MAX_REQUEST_BYTES} bytes"
            )
        try:
            body = self.rfile.read(int(length))
            if saves:
                raw = self.server.evaluations.parameters(msgspec.json.decode(body, type=ChosenElite))
                return self._send_answer(http.HTTPStatus.OK, "application/octet-stream", raw)
            answer = self.server.evaluations(msgspec.json.decode(body, type=Request))
        except (msgspec.MsgspecError, ElitesError, UnicodeError) as error:
            return self._send_error(http.HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # in the user's task
            return self._send_error(http.HTTPStatus.INTERNAL_SERVER_ERROR, describe_error(error))
        return self._send_answer(http.HTTPStatus.OK, "application/json", as_json(answer).encode())

    def _allowed(self, path: str) -> bool:
        """Whether the request is for the page, or comes from it. Otherwise answers 404, without a reason."""
        host = self.headers.get("Host", "") in self.server.hosts
        origin = self.headers.get("Origin", "").removeprefix("http://")
        own = not origin or origin in self.server.hosts
        expected_path = f"/{self.server.token}/{path}"
        if host and own and secrets.compare_digest(self.path.encode(), expected_path.encode()):
            return True
        self._send_error(http.HTTPStatus.NOT_FOUND, "not found")
        return False

    def _send_error(self, status: http.HTTPStatus, message: str) -> None:
        self._send_answer(status, "application/json", json.dumps({"error": message}).encode())

    def _send_answer(self, status: http.HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        headers |= {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the page was closed meanwhile
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Does nothing, so that requests are not printed on the terminal."""
