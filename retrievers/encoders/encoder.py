"""Sentence vectors of any encoder family, and token states with character offsets.

How a family makes a sentence vector (pooling, prefixes, dense layers, longest input) a model folder in the format of
sentence-transformers (`modules.json`) says itself; a table says it of bare models.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, remembered_sha256, settings_hash
from rag_mt.base.types import Encoder, Floats, Kind, TokenStates
from rag_mt.models.loading import LoadedEncoder, load_encoder

log = logging.getLogger("rag_mt")

Pooling = Literal["mean", "cls", "max", "pooler"]
POOLING_IN_FOLDERS: tuple[Pooling, ...] = ("mean", "cls", "max")
ACTIVATIONS = {"Tanh": torch.tanh, "Identity": lambda x: x, "ReLU": torch.relu, "GELU": torch.nn.functional.gelu}


@dataclass(frozen=True)
class Dense:
    """A linear layer after pooling: the file with its weights and the name of its activation function."""

    file: Path
    activation: str

    def load(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight (out, in) and bias (out) of the layer, float32."""
        tensors = {name: tensor.float().to(device) for name, tensor in load_file(self.file).items()}
        return tensors["linear.weight"], tensors.get("linear.bias")


@dataclass(frozen=True)
class Family:
    """Settings of a sentence vector; every vector is L2-normalised at the end. `prefixes` stand before every text of a
    kind, texts are cut after `max_tokens` tokens, prefix included, and `phrase_layer` is the hidden layer whose states
    align words best, where that was measured."""

    pooling: Pooling = "mean"
    prefixes: Mapping[str, str] = field(default_factory=dict)
    dense: tuple[Dense, ...] = ()
    max_tokens: int = 512
    phrase_layer: int | None = None

    def prefix(self, kind: Kind) -> str:
        """What stands before every text of a kind (multilingual-e5: `query: `, `passage: `)."""
        return self.prefixes.get(kind, "")

    def settings(self) -> dict[str, Any]:
        """JSON-able: all that changes vectors beside the transformer's own weights."""
        layers = [[layer.activation, remembered_sha256(layer.file)] for layer in self.dense]
        return {**asdict(replace(self, dense=())), "dense": layers}

    def at_layer(self, layer: int, prefix: str) -> Family:
        """The family of a model that reads the states of a hidden layer, with one prefix for all texts."""
        return Family("mean", {"query": prefix, "passage": prefix}, max_tokens=self.max_tokens, phrase_layer=layer)


E5_PREFIXES = {"query": "query: ", "passage": "passage: "}

# The first pattern found in the model's name wins. The layer for phrase vectors is that of a trial on dev data; sizes
# that were not tried have none.
TABLE: tuple[tuple[str, Family], ...] = (
    (r"(^|[^a-z])e5[-_]small", Family("mean", E5_PREFIXES, phrase_layer=7)),
    (r"(^|[^a-z])e5[-_]", Family("mean", E5_PREFIXES)),
    (r"labse", Family("pooler", max_tokens=256)),
    (r"xlm-?r|xlm-?roberta|infoxlm|mbert|bert-base-multilingual", Family("mean")),
)


def family_of(name: str, folder: Path | None) -> Family:
    """The family of a model: what its folder says, else the table by name, else mean pooling with a note. Prefixes and
    length are those by name where the folder is silent about them. Raises UserError for a folder in the format of
    sentence-transformers with parts that are not known here."""
    by_name = next((family for pattern, family in TABLE if re.search(pattern, name, re.IGNORECASE)), None)
    if folder is None or not (folder / "modules.json").is_file():
        if by_name is None:
            log.info("%s is of no known encoder family: its sentence vectors are the mean of its token states", name)
        return by_name or Family()
    family = replace(by_name or Family(), pooling="mean", dense=())
    for module in read_json(folder / "modules.json"):
        part = folder / module["path"]
        match module["type"].rsplit(".", 1)[-1]:
            case "Pooling":
                family = replace(family, pooling=_pooling(name, read_json(part / "config.json")))
            case "Dense":
                family = replace(family, dense=(*family.dense, _dense(name, part)))
            case "Transformer" | "Normalize":
                pass
            case other:
                raise UserError(
                    f"{name} has a sentence module {other!r}: expected Transformer, Pooling, Dense or Normalize"
                )
    prompts = _optional_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    passage = next((prompts[key] for key in ("passage", "document", "corpus") if key in prompts), "")
    prefixes = {"query": prompts.get("query", ""), "passage": passage}
    return replace(
        family,
        prefixes=prefixes if any(prefixes.values()) else family.prefixes,
        max_tokens=_optional_json(folder / "sentence_bert_config.json").get("max_seq_length") or family.max_tokens,
    )


def _optional_json(path: Path) -> Any:
    return read_json(path) if path.is_file() else {}


def _pooling(name: str, config: Mapping[str, Any]) -> Pooling:
    """The way of pooling that the settings of a Pooling module name; older ones have a flag for each way."""
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    mode = config.get("pooling_mode", flags) if config.get("include_prompt", True) else None
    for pooling in POOLING_IN_FOLDERS:
        if mode in (pooling, [f"pooling_mode_{pooling}_token"], [f"pooling_mode_{pooling}_tokens"]):
            return pooling
    raise UserError(
        f"{name} pools its tokens in a way that is not supported: expected mean, cls or max, not {dict(config)}"
    )


def _dense(name: str, folder: Path) -> Dense:
    activation = read_json(folder / "config.json").get("activation_function", "Tanh").rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise UserError(f"{name} has a dense layer with {activation}: expected one of {', '.join(ACTIVATIONS)}")
    file = folder / "model.safetensors"
    if not file.is_file():
        raise UserError(f"{name} lacks {folder.name}/model.safetensors: convert its dense layer to safetensors")
    return Dense(file, activation)


TOKENS_PER_BATCH = 2048
"""Tokens of a batch, padding included: measured best of 1,000 to 8,000 on a 2-core CPU in bf16."""
NO_ENCODER = "none"
BLANK = "\u2581"
"""The sign for the start of a word; as a token by itself it has the offsets of the character after it."""
STATES_BLOCK = 512
"""Texts whose token states are held at once."""


def open_encoder(
    name: str = DEFAULT_ENCODER, device: str = "auto", dtype: str = "auto", adapter: str | None = None
) -> TransformerEncoder:
    """The encoder of a name (hub id, folder, `embedded:NAME`); raises UserError if it cannot be loaded."""
    loaded = load_encoder(name, device, dtype, adapter)
    return TransformerEncoder(loaded, family_of(name, loaded.folder))


class ModelEncoder(Encoder, Protocol):
    """An Encoder that computes on `device` in the number format `dtype`."""

    device: torch.device

    @property
    def dtype(self) -> torch.dtype: ...


class NoEncoder:
    """Stands in for an encoder where a system needs none: its vectors have no dimensions (a ModelEncoder)."""

    id = NO_ENCODER
    fingerprint = NO_ENCODER
    dimension = hidden = layers = 0
    device = torch.device("cpu")
    dtype = torch.float32

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        """Float32 (len(texts), 0)."""
        return np.zeros((len(texts), 0), dtype=np.float32)

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        """Texts without tokens."""
        return iter([TokenStates(np.zeros((0, 0), np.float32), np.zeros((0, 2), np.int32))] * len(texts))


class TransformerEncoder:
    """Sentence vectors and token states of one transformer (the Encoder protocol). In bf16 a vector can differ in its
    last bits with the batch it is computed in; with dtype float32 the difference is below 1e-5. Threads may share an
    encoder: they run one after the other."""

    def __init__(self, loaded: LoadedEncoder, family: Family) -> None:
        self.id = loaded.name
        self.family = family
        self.fingerprint = settings_hash([loaded.fingerprint, family.settings()])
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device, self.dtype = loaded.device, loaded.dtype
        self.hidden: int = self.model.config.hidden_size
        self.layers: int = self.model.config.num_hidden_layers
        self._dense = [(*layer.load(self.device), ACTIVATIONS[layer.activation]) for layer in family.dense]
        self.dimension = len(self._dense[-1][0]) if self._dense else self.hidden
        positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        positions -= 2 if "roberta" in self.model.config.model_type else 0
        # Some models have relative positions and no such limit.
        self.max_tokens = min(family.max_tokens, positions) if positions > 0 else family.max_tokens
        # One thread at a time: `_hidden` removes the upper layers while it runs, and the tokenizer is set up at its
        # first use.
        self._lock = threading.Lock()
        self._blank_token = self.tokenizer.convert_tokens_to_ids(BLANK)

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        """L2-normalised sentence vectors, float32 (len(texts), dimension), in the order of the texts. Texts are cut
        after `max_tokens` tokens; how many were cut is logged."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        ids, _ = self._tokens(texts, self.family.prefix(kind))
        with self._lock, torch.inference_mode(), self.autocast():  # one context, in which each weight is cast once
            for rows, input_ids, mask in batches(ids, self.tokenizer.pad_token_id or 0):
                mask = mask.to(self.device)
                output = self.model(input_ids=input_ids.to(self.device), attention_mask=mask)
                with torch.autocast(self.device.type, enabled=False):
                    vectors[rows] = self.pool(output, mask).cpu().numpy()
        return vectors

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        """The hidden states of `layer` (0 = embeddings, negative from the last) of each text, in order. Layers above it
        are not run. Offsets are characters of the text itself: prefixes, special tokens and tokens that cover only
        white space are left out. Raises ValueError if the model has no such layer."""
        return (states for (states,) in self.layer_states(texts, (layer,)))

    def layer_states(self, texts: Sequence[str], layers: Sequence[int]) -> Iterator[tuple[TokenStates, ...]]:
        """For each text, in order, its `states` of each of `layers`: one pass for all of them."""
        depths = [layer if layer >= 0 else self.layers + 1 + layer for layer in layers]
        if wrong := [layer for layer, depth in zip(layers, depths, strict=True) if not 0 <= depth <= self.layers]:
            raise ValueError(f"layer {wrong[0]} of {self.id}: it has layers 0 to {self.layers}")
        for begin in range(0, len(texts), STATES_BLOCK):
            yield from self._block_states(texts[begin : begin + STATES_BLOCK], depths)

    def _block_states(self, texts: Sequence[str], depths: Sequence[int]) -> Iterator[tuple[TokenStates, ...]]:
        prefix = self.family.prefix("query")
        ids, offsets = self._tokens(texts, prefix)
        by_row: dict[int, tuple[TokenStates, ...]] = {}
        for rows, input_ids, mask in batches(ids, self.tokenizer.pad_token_id or 0):
            hidden = self._hidden(input_ids.to(self.device), mask.to(self.device), depths)
            layers = [states.float().cpu().numpy() for states in hidden]
            for at, row in enumerate(rows):
                tokens, spans = visible_tokens(texts[row], ids[row], offsets[row], len(prefix), self._blank_token)
                by_row[row] = tuple(TokenStates(states[at][tokens], spans) for states in layers)
        yield from map(by_row.pop, range(len(texts)))

    def _hidden(self, input_ids: torch.Tensor, mask: torch.Tensor, depths: Sequence[int]) -> list[torch.Tensor]:
        """States (batch, tokens, hidden) after each of `depths` layers; for a single depth the layers above it are not
        run."""
        encoder: Any = getattr(self.model, "encoder", None)
        with self._lock, torch.inference_mode(), self.autocast():
            layers = getattr(encoder, "layer", None)
            if layers is None or len(depths) > 1 or depths[0] == 0:
                output = self.model(input_ids=input_ids, attention_mask=mask, output_hidden_states=True)
                return [output.hidden_states[depth] for depth in depths]
            encoder.layer = layers[: depths[0]]
            try:
                return [self.model(input_ids=input_ids, attention_mask=mask).last_hidden_state]
            finally:
                encoder.layer = layers

    def _tokens(self, texts: Sequence[str], prefix: str) -> tuple[list[list[int]], list[NDArray[np.int32]]]:
        """Ids and offsets of the tokens of each text (see `token_ids`); how many texts were cut is logged."""
        with self._lock:
            ids, offsets, cut = token_ids(self.tokenizer, texts, prefix, self.max_tokens)
        if cut:
            message = "%d of %d texts are longer than %d tokens: their end is left out of the vectors"
            log.warning(message, cut, len(texts), self.max_tokens)
        return ids, offsets

    def pool(self, output: Any, mask: torch.Tensor) -> torch.Tensor:
        """L2-normalised sentence vectors (batch, dimension) of a model output."""
        states: torch.Tensor = output.last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        match self.family.pooling:
            case "mean":
                vectors = (states * weights).sum(1) / weights.sum(1)
            case "cls":
                vectors = states[:, 0]
            case "max":
                vectors = states.masked_fill(weights == 0, -torch.inf).amax(1)
            case "pooler":
                vectors = output.pooler_output.float()
        for weight, bias, activation in self._dense:
            vectors = activation(torch.nn.functional.linear(vectors, weight, bias))
        return torch.nn.functional.normalize(vectors, dim=-1)

    def autocast(self) -> torch.autocast:
        """The number format that the model computes in; int8 is a matter of its layers alone."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype in (torch.bfloat16, torch.float16))


def token_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], prefix: str, max_tokens: int
) -> tuple[list[list[int]], list[NDArray[np.int32]], int]:
    """For every text the token ids and the offsets (tokens, 2) into prefix + text, where special tokens have (0, 0);
    and how many texts were cut, after `max_tokens` tokens."""
    if not texts:
        return [], [], 0
    batch = tokenizer([prefix + t for t in texts], truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    offsets = [np.array(pairs, dtype=np.int32).reshape(-1, 2) for pairs in batch["offset_mapping"]]
    return batch["input_ids"], offsets, sum(encoding.overflowing != [] for encoding in batch.encodings or ())


def visible_tokens(
    text: str, ids: Sequence[int], offsets: NDArray[np.int32], prefix: int, blank: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Positions of the tokens of a text that cover more than white space, and their spans (tokens, 2) in the text.
    `offsets` (all tokens, 2) are into a prefix of so many characters and the text; `blank` is the number of BLANK."""
    spans = trim(text, offsets, prefix)
    visible = np.flatnonzero((spans[:, 1] > spans[:, 0]) & (np.array(ids) != blank))
    return visible, spans[visible]


def batches(
    ids: Sequence[Sequence[int]], pad: int, tokens: int = TOKENS_PER_BATCH
) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """Batches of texts of similar length, longest first, each of at most `tokens` tokens with padding (but at least one
    text): the numbers of the texts, their ids and their mask, both (texts, longest)."""
    order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
    begin = 0
    while begin < len(order):
        width = len(ids[order[begin]])
        rows = order[begin : begin + max(1, tokens // width)]
        begin += len(rows)
        input_ids, mask = padded([ids[row] for row in rows], pad)
        yield rows, torch.from_numpy(input_ids), torch.from_numpy(mask)


def padded(ids: Sequence[Sequence[int]], pad: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and mask (texts, longest), padded at the end."""
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    rows = np.full(mask.shape, pad, dtype=np.int64)
    rows[mask] = np.fromiter(chain.from_iterable(ids), dtype=np.int64)
    return rows, mask.astype(np.int64)


def trim(text: str, offsets: NDArray[np.int32], prefix: int) -> NDArray[np.int32]:
    """Offsets (tokens, 2) into a text with `prefix` characters before it, as offsets into the text alone and without
    white space at either end. Tokens of the prefix and tokens of white space alone become empty spans."""
    visible = np.flatnonzero([not (c.isspace() or c == BLANK) for c in text])
    first, end = np.searchsorted(visible, np.clip(offsets - prefix, 0, len(text)).T)
    visible = np.append(visible, 0)  # for tokens that have none
    spans = np.stack([visible[first], visible[end - 1] + 1], axis=1)
    return np.where((first < end)[:, None], spans, 0).astype(np.int32)
