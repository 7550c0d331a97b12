"""The embedded encoder as an XLM-RoBERTa, the class that unbabel-comet knows.

multilingual-e5-small is a BERT with XLM-RoBERTa's vocabulary. Both classes compute the same, save that an
XLMRobertaModel counts positions from 2: its table of positions has two rows in front that it never reads for tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import BertModel, XLMRobertaConfig, XLMRobertaModel

from rag_mt.defaults import DEFAULT_ENCODER
from rag_mt.fingerprints import read_json
from rag_mt.models import quiet_loading, resolve_model
from rag_mt.paths import cache_dir, whole_folder

SHIFT = 2
"""XLM-RoBERTa's first position: its padding token's number, 1, plus 1."""
CONVERSION = 1
"""Raised whenever the folder would be written otherwise."""

# What transformers 4, which unbabel-comet needs, and transformers 5 both take for XLM-RoBERTa's tokenizer.
TOKENIZER = {
    "tokenizer_class": "XLMRobertaTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
    "model_max_length": 512,
}


def xlmr_folder() -> Path:
    """The folder of the embedded encoder as an XLM-RoBERTa, made in the program's cache at its first use."""
    source = resolve_model(DEFAULT_ENCODER)
    folder = cache_dir() / "models" / f"{source.name}-xlmr-{CONVERSION}"
    if not folder.is_dir():
        with whole_folder(folder) as part:
            write_xlmr(source, part)
    return folder


def write_xlmr(source: Path, folder: Path) -> None:
    """Write the BERT with XLM-RoBERTa's tokenizer in `source` as an XLM-RoBERTa into `folder`."""
    with quiet_loading():
        bert: Any = BertModel.from_pretrained(source, add_pooling_layer=False, local_files_only=True)
        model = XLMRobertaModel(xlmr_config(bert.config), add_pooling_layer=False)
        weights = bert.state_dict()
        name = "embeddings.position_embeddings.weight"
        weights[name] = torch.cat([torch.zeros(SHIFT, weights[name].shape[1]), weights[name]])
        model.load_state_dict({n: w for n, w in weights.items() if n in model.state_dict()})
        model.save_pretrained(folder)
    # transformers 4 builds its tokenizer from the table of words in tokenizer.json just as transformers 5 does
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER, indent=1) + "\n")
    settings = read_json(folder / "config.json") | {"torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")


def xlmr_config(config: Any) -> XLMRobertaConfig:
    """The settings of the XLM-RoBERTa that equals a BERT of these settings."""
    same = (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *("type_vocab_size", "layer_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )
    return XLMRobertaConfig(
        max_position_embeddings=config.max_position_embeddings + SHIFT, **{name: getattr(config, name) for name in same}
    )
