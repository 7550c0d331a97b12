"""llama.cpp's server in this process: one GGUF model, its adapters, and slots that compute one answer each."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rag_mt.base.errors import UserError

REMEMBERED = 4  # shared instructions whose keys and values are kept
BYTES_PER_THREAD = 256 << 20
"""Of weights, from which on a thread pays for a single token: Gemma 3 270M (253 MB) answers one prompt with 52 tokens/s
by one thread and 43 by two; with a neighbour on one core by one 45 and by two 27 to 37 (reports/engines.md)."""
INSTALL = "pip install xllamacpp"
Ids = tuple[int, ...]


class LlamaError(Exception):
    """What the server answers instead of a result."""


def available_cores() -> int:
    """The cores that this process may use: those of its affinity, within the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def threads_for(size: int) -> tuple[int, int]:
    """The threads that compute the next token of one answer, and those that compute several columns at once, for a
    model of `size` bytes. Threads that meet after each of hundreds of small products cost more than they bring."""
    cores = available_cores()
    return max(1, min(cores, size // BYTES_PER_THREAD)), cores


class LlamaServer:
    """One model in `slots` that compute together; each has its own keys and values, and they share `pool` tokens.

    It listens on this machine alone, with a key that nobody else has, and ends with the object.
    """

    def __init__(self, gguf: Path, adapters: Sequence[Path], slots: int, pool: int, gpu: bool = False) -> None:
        """`adapters` are GGUF LoRA files; each request says which of them it uses. With `gpu` the layers go onto one,
        if llama.cpp was built for it. Raises UserError if the package is missing or cannot load the model."""
        try:
            import xllamacpp
        except ImportError as error:
            raise UserError(f"{gguf.name} needs the package xllamacpp ({error}): {INSTALL}") from error
        self._adapters = len(adapters)
        self._folder = TemporaryDirectory(prefix="rag_mt.prefixes.")
        self._key = secrets.token_hex(16)
        self._prefixes: OrderedDict[tuple[int | None, Ids], str] = OrderedDict()
        self._lock = threading.Lock()
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf)
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(file), 0.0) for file in adapters]
        params.n_parallel, params.n_ctx, params.kv_unified = slots, pool, True
        params.swa_full = True  # a sliding window's keys could not be taken up again
        params.cache_ram_mib = 0
        params.prefill_assistant = False
        params.cpuparams.n_threads, params.cpuparams_batch.n_threads = threads_for(gguf.stat().st_size)
        params.n_gpu_layers = -1 if gpu else 0
        params.fit_params = params.warmup = params.ui = False
        params.verbosity = -1
        params.api_keys = [self._key]
        params.slot_save_path = f"{self._folder.name}{os.sep}"
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise UserError(
                f"llama.cpp cannot load {gguf}{' with its adapter' if adapters else ''}: check that the file is whole "
                f"and of an architecture that xllamacpp {xllamacpp.__version__} knows, or upgrade it ({INSTALL} -U)"
            ) from error
        self._host = self._server.listening_address.removeprefix("http://")

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's answer. Raises LlamaError."""
        request = LlamaRequest(self, path, body)
        try:
            return json.loads(request.response().read())
        finally:
            request.close()

    def tokens(self, text: str, special: bool) -> Ids:
        """The tokens of a text in which control tokens count as such; `special` sets those of its beginning."""
        body = {"content": text, "add_special": special, "parse_special": True}
        return tuple(self.post("/tokenize", body)["tokens"])

    def chat_text(self, messages: Sequence[Mapping[str, Any]], **template: Any) -> str:
        """Messages in the model's chat template, which gets the values of `template`."""
        return str(self.post("/apply-template", {"messages": messages, "chat_template_kwargs": template})["prompt"])

    def completion(self, ids: Ids, adapter: int | None, slot: int, limit: int, **more: Any) -> LlamaRequest:
        """A request for up to `limit` tokens after `ids`, streamed; `slot` reads only what is not in it."""
        return LlamaRequest(self, "/completion", self._body(ids, adapter, slot, limit) | {"stream": True, **more})

    def lay_prefix(self, ids: Ids, adapter: int | None, slot: int) -> bool:
        """Put the keys and values of `ids` into a slot, instead of what is there; they are computed once, alone, while
        they are remembered. Without any return False: there is nothing to take up."""
        if not ids:
            return False
        with self._lock:
            name = self._prefixes.pop((adapter, ids), None)
            if name is None:
                body = self._body(ids, adapter, slot, 0) | {"cache_prompt": False}
                self.post("/completion", body)
                name = f"{secrets.token_hex(8)}.bin"
                self.post(f"/slots/{slot}?action=save", {"filename": name})
            self._prefixes[adapter, ids] = name
            while len(self._prefixes) > REMEMBERED:
                (Path(self._folder.name) / self._prefixes.popitem(last=False)[1]).unlink()
            self.post(f"/slots/{slot}?action=restore", {"filename": name})
        return True

    def connection(self) -> HTTPConnection:
        """A new connection."""
        return HTTPConnection(self._host)

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}

    def _body(self, ids: Ids, adapter: int | None, slot: int, limit: int) -> dict[str, Any]:
        scales = [{"id": n, "scale": float(n == adapter)} for n in range(self._adapters)]
        greedy = {"temperature": 0, "samplers": ["temperature"], "seed": 0}
        return {"prompt": ids, "n_predict": limit, "id_slot": slot, "lora": scales, "return_tokens": True, **greedy}


class LlamaRequest:
    """A request on a connection of its own, which may be closed from another thread: the server then stops computing
    for it, between two tokens."""

    def __init__(self, server: LlamaServer, path: str, body: Mapping[str, Any]) -> None:
        self._connection = server.connection()
        self._path, self._body, self._headers = path, body, server.headers
        self.closed = False

    def response(self, **more: Any) -> Any:
        """The response of a request that succeeded, with `more` in its body. Raises LlamaError."""
        try:
            self._connection.request("POST", self._path, json.dumps({**self._body, **more}), self._headers)
            response = self._connection.getresponse()
            if response.status != 200:
                raise LlamaError(_message(response.read()))
            return response
        except (OSError, HTTPException) as error:
            raise LlamaError(f"the connection broke: {error}") from error

    def events(self, **more: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer, until its end or until it is closed, with `more` in the body. Raises
        LlamaError."""
        try:
            for line in () if self.closed else self.response(**more):
                if self.closed:
                    return
                if line.startswith(b"error: ") or line.startswith(b'data: {"error"'):
                    raise LlamaError(_message(line.partition(b": ")[2]))
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        except (LlamaError, OSError, ValueError, HTTPException) as error:
            if not self.closed:
                raise LlamaError(str(error)) from error
        finally:
            self._connection.close()

    def close(self) -> None:
        """Stop it."""
        self.closed = True
        with suppress(OSError, AttributeError):  # it is closed already, or has not begun
            self._connection.sock.shutdown(socket.SHUT_RDWR)


def _message(answer: bytes) -> str:
    try:
        error: Any = json.loads(answer)
        error = error.get("error", error)
        return str(error.get("message", error))
    except (ValueError, AttributeError):
        return answer.decode(errors="replace")[:200] or "no explanation"
