"""What all models that this project trains have in common: a settings file, weights beside it, a base encoder."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.models.adapter_files import WEIGHTS as ADAPTER
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.models.weights import FOLDER, shipped_with


@dataclass(frozen=True)
class ModelSettings:
    """The settings of a trained model beside its weights, stored as JSON in the model's folder.

    A kind of model is a subclass that adds its fields and names its settings file (`FILE`), what messages call such a
    model (`KIND`) and the command that trains one (`COMMAND`). `encoder` is the name of the base encoder.
    """

    FILE: ClassVar[str]
    KIND: ClassVar[str]
    COMMAND: ClassVar[str]

    encoder: str

    @classmethod
    def find(cls, name: str) -> Path | None:
        """The folder of the model `name`, shipped or a path; None if `name` is no model of this kind."""
        return next((f for f in (FOLDER / name, Path(name).expanduser()) if (f / cls.FILE).is_file()), None)

    @classmethod
    def is_model(cls, name: str) -> bool:
        """Whether `name` is a trained model of this kind."""
        return cls.find(name) is not None

    @classmethod
    def folder(cls, name: str) -> Path:
        """As `find`; raises UserError if `name` is no model of this kind."""
        folder = cls.find(name)
        if folder is None:
            ours = ", ".join(shipped_with(cls.FILE)) or "a model"
            raise UserError(
                f"{name!r} is no {cls.KIND}: give {ours} or a folder with {cls.FILE} (`{cls.COMMAND}` makes one)"
            )
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the settings file; raises UserError if it is missing or written by another version."""
        path = folder / cls.FILE
        if not path.is_file():
            raise UserError(f"{folder} is no {cls.KIND}: it lacks {cls.FILE} (`{cls.COMMAND}` makes one)")
        stored = read_json(path)
        optional = {field.name for field in fields(cls) if field.default_factory is not MISSING}
        unexpected = stored.keys() ^ ({field.name for field in fields(cls)} - (optional - stored.keys()))
        if unexpected:
            names = ", ".join(sorted(unexpected))
            raise UserError(f"{path} does not fit this version of rag_mt ({names}): train the model again")
        return cls(**stored)

    def save(self, folder: Path) -> None:
        """Write the settings file."""
        (folder / self.FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def load_head(self, head: torch.nn.Module, path: Path) -> None:
        """Give `head` the weights in the file `path` as float32; raises UserError if it is missing or does not fit."""
        if not path.is_file():
            raise UserError(f"the {self.KIND} {path.parent} lacks {path.name}: copy the whole folder again")
        try:
            head.load_state_dict({name: weight.float() for name, weight in load_file(path).items()})
        except (RuntimeError, ValueError, SafetensorError) as error:
            raise UserError(f"{path} does not fit {self.FILE} beside it: copy the whole folder again") from error

    def load_encoder(self, adapter: Path, whole: Path, device: str, dtype: str) -> LoadedEncoder:
        """The base encoder with the adapter in the folder `adapter`; if that has none, the encoder in the folder
        `whole`, which was tuned as a whole. Raises UserError if it cannot be loaded."""
        if (adapter / ADAPTER).is_file():
            return load_encoder(self.encoder, device, dtype, adapter=str(adapter))
        return load_encoder(str(whole), device, dtype)


def save_head(head: torch.nn.Module, path: Path, dtype: torch.dtype) -> None:
    """Write the weights of `head` as safetensors in the number format `dtype`."""
    save_file({name: w.detach().to("cpu", dtype).contiguous() for name, w in head.state_dict().items()}, path)
