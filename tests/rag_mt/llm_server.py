"""An OpenAI-compatible server that misbehaves as it is told, for tests of what no real server can be made to do.

It answers everything with ANSWER in pieces. `POST /faults` with a list sets what happens to the next requests, one
each: a status code (whose message repeats the key), `drop` (the connection is closed without an answer), `slow` (half
a second late), `later` (503, to be asked again after a second), `cut` (a stream ends in the middle), `error` (it
reports an error there) or `foreign` (it has not the protocol's fields). `GET /log` tells what was asked.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS, WINDOW = ("tiny", "plain"), 256
ANSWER = "The house is old."
faults: list[Any] = []
log: dict[str, Any] = {"requests": 0, "at_once": 0, "most_at_once": 0, "bodies": [], "keys": []}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    window = WINDOW

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        own = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        for name, value in {**own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.answer(status, {"error": {"message": message}}, headers)

    def do_GET(self) -> None:
        self.answer(
            200, log if self.path == "/log" else {"data": [{"id": m, "max_model_len": self.window} for m in MODELS]}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/faults":
            faults[:] = body
            log.update(requests=0, most_at_once=0, bodies=[], keys=[])
            return self.answer(200, {})
        with lock:
            log["requests"] += 1
            log["at_once"] += 1
            log["most_at_once"] = max(log["most_at_once"], log["at_once"])
            log["bodies"].append(body)
            log["keys"].append(self.headers.get("Authorization"))
            fault = faults.pop(0) if faults else None
        try:
            self.complete(body, fault)
        finally:
            with lock:
                log["at_once"] -= 1

    def complete(self, body: dict[str, Any], fault: Any) -> None:
        if fault == "drop":
            self.close_connection = True
        elif fault == "later":
            self.refuse(503, "not now", {"Retry-After": "1"})
        elif isinstance(fault, int):
            said = f"fault {fault} {self.headers.get('Authorization', '')}".strip()
            self.refuse(fault, said, {"Retry-After": "0"} if fault == 429 else {})
        elif body["model"] not in MODELS:
            self.refuse(404, f"the model {body['model']} does not exist")
        else:
            time.sleep(0.5 if fault == "slow" else 0)
            self.stream(self.path == "/v1/chat/completions", self.text(body), fault)

    def text(self, body: dict[str, Any]) -> str:
        """The answer to a request."""
        return ANSWER

    def stream(self, chat: bool, answer: str, fault: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for at in range(0, len(answer), 4):
                if fault == "cut" and at:
                    self.close_connection = True
                    return
                if fault == "error" and at:
                    self.event(json.dumps({"error": {"message": "out of blocks"}}))
                if fault == "foreign":
                    self.event(json.dumps({"choices": [{"delta": 7}], "usage": "none"}))
                piece = answer[at : at + 4]
                self.event(json.dumps({"choices": [{"delta": {"content": piece}} if chat else {"text": piece}]}))
            choice: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
            self.event(json.dumps({"choices": [{**choice, "finish_reason": "stop"}]}))
            self.event(json.dumps({"choices": [], "usage": {"completion_tokens": 5}}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def event(self, data: str) -> None:
        chunk = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.flush()


@contextmanager
def serving(handler: type[Handler] = Handler) -> Iterator[str]:
    """The server in a thread; the address of its API."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
