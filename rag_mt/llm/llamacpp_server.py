"""llama.cpp's server in this process: one GGUF model, with its adapter, and slots that compute one answer each."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rag_mt.base.errors import UserError

log = logging.getLogger("rag_mt")

REMEMBERED = 4  # shared instructions whose keys and values are kept
BYTES_PER_THREAD = 2 << 30
"""Of weights, for which a thread pays: those of a server wait for each other after each of hundreds of small products.
On two cores two servers of one thread give 1.5 times as many tokens as one of two threads that answers eight prompts
together, with 253 MB of weights, and 1.8 times with 1.1 GB (reports/engines.md)."""
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


@dataclass(frozen=True)
class Layout:
    """How many servers compute side by side, the slots of each, whose answers are computed together, and its threads;
    with `gpu` the layers go onto one, if llama.cpp was built for it."""

    servers: int
    slots: int
    threads: int
    gpu: bool = False


def layout_for(size: int, at_once: int, gpu: bool = False) -> Layout:
    """The layout for a model of `size` bytes that answers up to `at_once` prompts.

    A small one is computed by a server for each core, which has one thread and one slot: answers that are computed
    together would be hardly faster, and would depend on each other.
    """
    cores = available_cores()
    threads = max(1, min(cores, size // BYTES_PER_THREAD))
    servers = 1 if gpu else max(1, min(at_once, cores // threads))
    small = threads == 1 and not gpu
    return Layout(servers, 1 if small else -(-at_once // servers), threads, gpu)


class LlamaServer:
    """One model in slots that compute together; each has its own keys and values, and they share `pool` tokens.

    It listens on this machine alone, with a key that nobody else has, and ends with the object.
    """

    def __init__(self, gguf: Path, adapter: Path | None, layout: Layout, pool: int) -> None:
        """`adapter` is a GGUF LoRA file. Raises UserError if the package is missing, cannot load the model, or finds no
        GPU where one is asked for."""
        try:
            import xllamacpp
        except ImportError as error:
            raise UserError(f"{gguf.name} needs the package xllamacpp ({error}): {INSTALL}") from error
        if layout.gpu and not any(device["type"].name.endswith("GPU") for device in xllamacpp.get_device_info()):
            raise UserError(
                f"llama.cpp finds no GPU for {gguf.name}: choose --device cpu, or install xllamacpp built for one"
            )
        self._folder = TemporaryDirectory(prefix="rag_mt.prefixes.")
        self._key = secrets.token_hex(16)
        self._prefixes: OrderedDict[Ids, str] = OrderedDict()
        self._lock, self._slots_lock = threading.Lock(), threading.Lock()
        self._free, self._taken, self._pool = list(range(layout.slots)), 0, pool
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf)
        # No request names the adapter: one that did would empty a slot that had not had it before.
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)] if adapter else []
        params.n_parallel, params.n_ctx, params.kv_unified = layout.slots, pool, True
        params.swa_full = True  # a sliding window's keys could not be taken up again
        params.cache_ram_mib = 0
        params.prefill_assistant = False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = layout.threads
        params.n_gpu_layers = -1 if layout.gpu else 0
        params.fit_params = params.warmup = params.ui = False
        params.no_extra_bufts = True  # repacked weights would be each server's own, and no faster
        params.verbosity = -1
        params.api_keys = [self._key]
        params.slot_save_path = f"{self._folder.name}{os.sep}"
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise UserError(
                f"llama.cpp cannot load {gguf}{' with its adapter' if adapter else ''}: check that the file is whole, "
                f"with a chat template without errors and of an architecture that xllamacpp {xllamacpp.__version__} "
                f"knows, or upgrade it ({INSTALL} -U)"
            ) from error
        self._host = self._server.listening_address.removeprefix("http://")
        with suppress(LlamaError):  # a server that is let go before its queue runs would be waited for without end
            self.post("/slots/0?action=erase", {})

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's answer. Raises LlamaError."""
        return LlamaRequest(self, path, body).answer()

    def tokens(self, text: str, special: bool) -> Ids:
        """The tokens of a text in which control tokens count as such; `special` sets those of its beginning."""
        body = {"content": text, "add_special": special, "parse_special": True}
        return tuple(self.post("/tokenize", body)["tokens"])

    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens."""
        return str(self.post("/detokenize", {"tokens": ids})["content"])

    def chat_text(self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
        """Messages in the model's chat template, which gets `values`."""
        return str(self.post("/apply-template", {"messages": messages, "chat_template_kwargs": values})["prompt"])

    def completion(self, ids: Ids, slot: int, limit: int, **more: Any) -> LlamaRequest:
        """A request for up to `limit` tokens after `ids`, streamed; `slot` reads only what is not in it."""
        return LlamaRequest(self, "/completion", self._body(ids, slot, limit) | {"stream": True, **more})

    def take_slot(self, tokens: int) -> int | None:
        """A slot that nobody uses, if there is one and the pool has room for the keys and values of so many tokens."""
        with self._slots_lock:
            if not self._free or (self._taken and self._taken + tokens > self._pool):
                return None
            self._taken += tokens
            return self._free.pop()

    def give_slot(self, slot: int, tokens: int) -> None:
        """Let others use a slot and its room."""
        with self._slots_lock:
            self._taken -= tokens
            self._free.append(slot)

    def lay_prefix(self, ids: Ids, slot: int, request: LlamaRequest) -> bool:
        """Put the keys and values of `ids` into a slot for a request, instead of what is there; they are computed once,
        alone, while they are remembered. Return False if there are none or the request is closed."""
        with self._lock:  # also without a prefix: one that was given up may still be laid into the slot
            if not ids or request.closed:  # closed: the slot may be another one's by now
                return False
            name = self._prefixes.pop(ids, None)
            if name is None:
                body = self._body(ids, slot, 0) | {"cache_prompt": False}
                self.post("/completion", body)
                name = f"{secrets.token_hex(8)}.bin"
                self.post(f"/slots/{slot}?action=save", {"filename": name})
            self._prefixes[ids] = name
            while len(self._prefixes) > REMEMBERED:
                (Path(self._folder.name) / self._prefixes.popitem(last=False)[1]).unlink()
            try:
                self.post(f"/slots/{slot}?action=restore", {"filename": name})
            except LlamaError:  # what was left in slots that nobody uses now takes the room
                for other in tuple(self._free):
                    self.post(f"/slots/{other}?action=erase", {})
                self.post(f"/slots/{slot}?action=restore", {"filename": name})
        return True

    def connection(self) -> HTTPConnection:
        """A new connection."""
        return HTTPConnection(self._host)

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}

    def _body(self, ids: Ids, slot: int, limit: int) -> dict[str, Any]:
        greedy = {"temperature": 0, "samplers": ["temperature"], "seed": 0}
        return {"prompt": ids, "n_predict": limit, "id_slot": slot, "return_tokens": True, **greedy}


class Slot(NamedTuple):
    """Where an answer is computed."""

    server: LlamaServer
    number: int


class LlamaServers:
    """The servers of a layout; all but the first are opened when they are needed."""

    def __init__(self, gguf: Path, adapter: Path | None, layout: Layout, pool: int) -> None:
        """See LlamaServer."""
        self._most = layout.servers
        self._open = partial(LlamaServer, gguf, adapter, layout, pool)
        self._servers = [self._open()]
        self._lock = threading.Lock()

    @property
    def first(self) -> LlamaServer:
        """The one that is always there."""
        return self._servers[0]

    def take_slot(self, tokens: int) -> Slot | None:
        """A slot that nobody uses, if there is one with room for the keys and values of so many tokens."""
        with self._lock:
            for server in self._servers:
                number = server.take_slot(tokens)
                if number is not None:
                    return Slot(server, number)
            if len(self._servers) < self._most:
                try:
                    self._servers.append(self._open())
                except UserError as error:
                    self._most = len(self._servers)
                    log.warning("no further server finds room beside the first %d (%s): going on", self._most, error)
                else:
                    number = self._servers[-1].take_slot(tokens)
                    return None if number is None else Slot(self._servers[-1], number)
            return None


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
            self._connection.connect()
            if self.closed:  # before there was anything to shut down
                raise LlamaError("the request was closed")
            self._connection.request("POST", self._path, json.dumps({**self._body, **more}), self._headers)
            response = self._connection.getresponse()
            if response.status != 200:
                raise LlamaError(_message(response.read()))
            return response
        except (OSError, HTTPException) as error:
            raise LlamaError(f"the connection broke: {error}") from error

    def answer(self) -> Any:
        """The whole answer. Raises LlamaError."""
        try:
            return json.loads(self.response().read())
        except (OSError, ValueError, HTTPException) as error:
            raise LlamaError(f"the answer broke off: {error}") from error
        finally:
            self._connection.close()

    def events(self, **more: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer, until its end or until it is closed, with `more` in the body. Raises
        LlamaError."""
        try:
            for line in () if self.closed else self.response(**more):
                if self.closed:
                    return
                if line.startswith(b"error: ") or line.startswith(b'data: {"error"'):
                    raise LlamaError(_message(line.partition(b": ")[2]))
                if line.startswith((b"data: {", b"{")):
                    yield json.loads(line.removeprefix(b"data: "))
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
    """What the server says of an error, in one line; of an error in a template what that says itself."""
    try:
        error: Any = json.loads(answer)
        error = error.get("error", error)
        return " ".join(str(error.get("message", error)).rpartition("Error: ")[2].split())
    except (ValueError, AttributeError):
        return answer.decode(errors="replace")[:200] or "no explanation"
