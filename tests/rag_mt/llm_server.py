"""An OpenAI-compatible server around a TransformersLLM, for tests: `python llm_server.py MODEL_FOLDER`.

Prints its port and serves until its standard input ends. `POST /faults` with a list sets what happens to the next
requests, one each: a status code, `drop` (the connection is closed without an answer), `slow` (half a second late),
`later` (503, to be asked again after a second), `cut` (a stream ends in the middle) or `error` (it reports an error
there). `GET /log` tells what was asked. With
API_KEY set, requests need it; with CHAT_ONLY set, there is no /completions.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rag_mt.base.types import Prompt
from rag_mt.llm.queue import complete
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm

MODEL = "tiny"
LLM = TransformersLLM(load_llm(sys.argv[1], device="cpu", dtype="float32"), 1)
KEY = os.environ.get("API_KEY")
COMPLETIONS = not os.environ.get("CHAT_ONLY")
faults: list[Any] = []
log: dict[str, Any] = {"requests": 0, "at_once": 0, "most_at_once": 0, "cancelled": 0, "bodies": [], "keys": []}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

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

    def allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        if KEY and given != f"Bearer {KEY}":
            self.refuse(401, f"the key in {given} is wrong")
            return False
        return True

    def do_GET(self) -> None:
        if self.path == "/log":
            self.answer(200, log)
        elif self.path == "/v1/models" and self.allowed():
            self.answer(200, {"data": [{"id": MODEL, "max_model_len": LLM.context_length}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/faults":
            faults[:] = body
            log.update(requests=0, most_at_once=0, cancelled=0, bodies=[], keys=[])
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
        chat = self.path == "/v1/chat/completions"
        if fault == "drop":
            self.close_connection = True
            return None
        if fault == "later":
            return self.refuse(503, "not now", {"Retry-After": "1"})
        if isinstance(fault, int):
            return self.refuse(fault, f"fault {fault}", {"Retry-After": "0"} if fault == 429 else {})
        if fault == "slow":
            time.sleep(0.5)
        if not self.allowed():
            return None
        if not chat and not (COMPLETIONS and self.path == "/v1/completions"):
            return self.refuse(404, "Not Found")
        if body["model"] != MODEL:
            return self.refuse(404, f"the model {body['model']} does not exist")
        text = body["messages"][0]["content"] if chat else body["prompt"]
        prompt = Prompt(text, chat=chat, stop=tuple(body.get("stop", ())))
        if LLM.count_tokens(prompt) >= LLM.context_length:
            return self.refuse(400, f"maximum context length is {LLM.context_length} tokens")
        if body.get("stream"):
            return self.stream(prompt, body["max_tokens"], chat, fault)
        with lock:
            found = complete(LLM, [prompt], body["max_tokens"])[0]
        choice: dict[str, Any] = {"finish_reason": "stop" if found.finished else "length"}
        choice |= {"message": {"role": "assistant", "content": found.text}} if chat else {"text": found.text}
        return self.answer(200, {"choices": [choice], "usage": {"completion_tokens": found.tokens}})

    def stream(self, prompt: Prompt, limit: int, chat: bool, fault: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            with lock:
                answer = complete(LLM, [prompt], limit)[0]
            for number, at in enumerate(range(0, len(answer.text), 2)):
                if fault == "cut" and number == 3:
                    self.close_connection = True
                    return
                if fault == "error" and number == 3:
                    self.event(json.dumps({"error": {"message": "out of blocks"}}))
                piece = answer.text[at : at + 2]
                self.event(json.dumps({"choices": [{"delta": {"content": piece}} if chat else {"text": piece}]}))
                time.sleep(0.01)
            choice: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
            choice["finish_reason"] = "stop" if answer.finished else "length"
            self.event(json.dumps({"choices": [choice]}))
            self.event(json.dumps({"choices": [], "usage": {"completion_tokens": answer.tokens}}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            log["cancelled"] += 1
            self.close_connection = True

    def event(self, data: str) -> None:
        chunk = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.flush()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
