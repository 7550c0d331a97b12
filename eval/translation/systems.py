"""The systems that translation is measured with, named in a TOML file.

    [defaults]                      # what every system has unless it says otherwise
    llm = "embedded:gemma-3-270m"
    dtype = "float32"

    [systems.plain]
    retriever = "none"

    [systems.ccpr]
    index = "../indexes/{tgt}"      # {src}, {tgt}, {group} and, in the suites of domains, {domain} are filled in
    adapter = { to_en = "../adapters/ccpr-to-en", from_en = "../adapters/ccpr-from-en" }

    [systems.upper]
    like = "ccpr"
    hints = "oracle"

Paths are relative to the file, in one that comes with rag_mt to the current folder. An `index` that is left out is the
sample index; `only_files`, `only_domain`, `since` and `until` say which files of it are looked at. `hints` says what
becomes of them: `retrieved`; `none`, to see what dropping them changes; `shuffled`, each sentence gets those of others;
`oracle`, phrases cut from the reference by word
alignment. With a memory every sentence has its own draft all the same: `none` is always the draft, and `shuffled` gives
the sentences for which hints are shown those of each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import Field, TypeAdapter, ValidationError

from prompts.builder import WRAPPERS
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_ENCODER, DEFAULT_LLM, DEFAULT_RETRIEVER, Engine
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_toml
from rag_mt.base.languages import direction_group
from rag_mt.base.only import Only
from rag_mt.base.settings import folder_of_paths
from rag_mt.llm.opening import is_gguf
from rag_mt.models.adapter_files import checked_adapter
from rag_mt.models.loading import DTYPES, Quantization
from rag_mt.translation.opening import NONE, chosen_adapter
from retrievers.ccpr.retriever import Segmentation
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import open_index
from retrievers.registry import retriever_spec

Group = Literal["to_en", "from_en", "other"]
OF_THE_INDEX = ("only_files", "only_domain", "since", "until")
AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]
EXAMPLE = "systems"
"""The settings that ship, used unless others are named."""


@dataclass(frozen=True)
class System:
    """A way to translate. `adapter` has a folder for each group of directions that has one, or `auto` for the adapter
    that comes with rag_mt. `cut_off` is the least score of a hit that is shown (of CCPR: its confidence), 0 for the
    index's own. `llm_options` are fields of requests to a server (see `rag_mt.llm.options`). `dtype` is by default
    float32, in which outputs depend on nothing but their prompts, by llama.cpp that of the file. `segmentation`, of
    CCPR, says what is looked up: the phrases that it sees, or `ngrams`, all spans of up to four words; the hits of
    either are judged by the same confidence model. With `consensus`, of a memory, its hints are shown together and each
    alone. `only_files`, `only_domain`, `since` and `until` say which files of the index are looked at.

    For `hints = "oracle"`: a layer of `align_encoder` finds the words that belong together; phrases have up to
    `oracle_words` words.
    """

    name: str = ""
    retriever: str = DEFAULT_RETRIEVER
    index: str = ""
    only_files: tuple[str, ...] = ()
    only_domain: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    encoder: str = ""
    cut_off: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    segmentation: Segmentation = "learned"
    consensus: bool = True
    wrapper: str = "auto"
    llm: str = DEFAULT_LLM
    llm_options: Mapping[str, Any] = field(default_factory=dict)
    adapter: Mapping[Group, str] = field(default_factory=dict)
    device: str = "auto"
    engine: Engine = "transformers"
    dtype: str = ""
    quantization: Quantization = "none"
    max_new_tokens: AtLeast1 = 256
    batch_size: AtLeast1 = 16
    hints: Literal["retrieved", "none", "shuffled", "oracle"] = "retrieved"
    seed: AtLeast0 = 12345
    align_encoder: str = DEFAULT_ENCODER
    align_layer: AtLeast0 = 6
    oracle_words: AtLeast1 = 4

    def at(self, source: str, target: str, domain: str = "") -> System:
        """The system for one direction of a domain, if there are domains: placeholders are filled in, and `adapter`
        holds at most that of its group."""
        group = cast(Group, direction_group(source, target))
        names = {"src": source, "tgt": target, "group": group} | ({"domain": domain} if domain else {})
        if not domain and "{domain}" in self.index:
            raise UserError(
                f"system {self.name} has the index {_short(self.index)}, and the suite has no domains: measure it with "
                "--suite domains or domains-dev"
            )

        if self.adapter and group not in self.adapter:
            raise UserError(
                f"system {self.name} has no adapter for {source}-{target}: add adapter.{group} to it, or leave all out"
            )
        named = filled(self.adapter[group], names) if self.adapter else None
        adapter = chosen_adapter(named, self.llm, source, target)
        return replace(
            self,
            index=filled(self.index, names),
            encoder=filled(self.encoder, names),
            adapter={group: adapter} if adapter else {},
            dtype=self.dtype or ("auto" if self.engine == "llamacpp" or is_gguf(self.llm) else "float32"),
        )

    @property
    def own_adapter(self) -> str | None:
        """The adapter of a system `at` a direction."""
        return next(iter(self.adapter.values()), None)

    @property
    def only(self) -> Only:
        """Which files of the index are looked at; raises UserError for a domain or a date that is none."""
        return Only(self.only_files, self.only_domain, self.since, self.until)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, without what it says of files of the index if it says nothing; folders by their last name only,
        because a report says nothing about a machine."""
        values = asdict(self) | {"adapter": {group: _short(text) for group, text in self.adapter.items()}}
        names = ("index", "encoder", "llm", "align_encoder")
        values = {name: value for name, value in values.items() if value or name not in OF_THE_INDEX}
        return values | {name: _short(values[name]) for name in names}


def filled(pattern: str, names: Mapping[str, str]) -> str:
    """A pattern such as `indexes/{domain}.{tgt}` with the values of its placeholders; unknown ones stay."""
    for name, value in names.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def _short(text: str) -> str:
    return Path(text).name if text.startswith(("/", ".", "~")) or Path(text).is_dir() else text


def read_systems(path: Path, names: str | None = None) -> list[System]:
    """The systems of a file, or those of `plain,ccpr` in that order.

    Raises UserError for a file that is missing or no TOML, and for systems and settings that do not exist, are of
    another type or do not go together.
    """
    sections = read_toml(path, "file of systems", f"--config {EXAMPLE}")
    for section in sorted(sections.keys() - {"defaults", "systems"}):
        raise UserError(f"{path} has a section [{section}] that is not known: expected [defaults] and [systems.NAME]")
    tables = sections.get("systems", {})
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise UserError(f"{path} names no system: expected sections such as [systems.plain]")
    chosen = list(dict.fromkeys(names.split(","))) if names is not None else list(tables)
    for name in chosen:
        if name not in tables:
            raise UserError(f"{path} has no system {name!r}: choose from {', '.join(tables)}")
        if not re.fullmatch(r"[\w-]+(@\d+)?", name):
            raise UserError(
                f"system {name!r} of {path} is no name for a folder: use letters, digits, - and _, and for one of "
                "several trainings @ and its seed"
            )
    defaults = sections.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UserError(f"{path} sets defaults to {defaults!r}: expected a section [defaults]")
    return [_system(path, name, defaults | _joined(path, tables, name), tables[name]) for name in chosen]


def _joined(path: Path, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a system and of those that it is `like`."""
    settings: dict[str, Any] = {}
    seen: list[str] = []
    while name:
        if name in seen:
            raise UserError(f"{path}: the systems {', '.join(seen)} are like each other: leave one `like` out")
        if name not in tables:
            raise UserError(f"{path}: system {seen[-1]} is like {name!r}, which is not there: expected a system's name")
        seen.append(name)
        settings = tables[name] | settings
        name = tables[name].get("like", "")
    settings.pop("like", None)
    return settings


def _system(path: Path, name: str, settings: dict[str, Any], own: Mapping[str, Any]) -> System:
    """The system with these settings, of which its section sets its `own` itself; `folder_of_paths` tells where
    its paths start."""
    known = [f.name for f in fields(System) if f.name != "name"]
    if unknown := [key for key in settings if key not in known]:
        raise UserError(f"{path} sets {unknown[0]} of {name}, which does not exist: expected one of {', '.join(known)}")
    if isinstance(folder := settings.get("adapter"), str):
        settings["adapter"] = dict.fromkeys(get_args(Group), folder) if folder else {}
    try:
        values = json.dumps({**settings, "name": name}, default=str)  # in Python's own types strict means instances
        system = TypeAdapter(System).validate_json(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, expected = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Input should be ")
        expected = expected.replace("greater than or equal to", "at least")
        raise UserError(f"{path} sets {key} of {name} to {first['input']!r}: expected {expected}") from None
    for key, allowed in {"wrapper": ("auto", *WRAPPERS), "dtype": ("", "auto", *DTYPES)}.items():
        if (value := getattr(system, key)) not in allowed:
            raise UserError(
                f"{path} sets {key} of {name} to {value!r}: expected one of {', '.join(filter(None, allowed))}"
            )
    if asked := [key for key in OF_THE_INDEX if getattr(system, key)]:
        if not system.index:
            raise UserError(
                f"{path} sets {asked[0]} of {name}, which has no index: give it one, or leave {asked[0]} out"
            )
        try:
            _ = system.only
        except UserError as error:
            raise UserError(f"{path}: system {name}: {error}") from None
    spec = retriever_spec(system.retriever)
    if not system.consensus and spec.unit != "memory":
        raise UserError(
            f"{path} sets consensus of {name}, whose retriever is {system.retriever!r}: only a memory has that"
        )
    if own.get("segmentation", "learned") != "learned" and system.retriever != "ccpr":
        raise UserError(
            f"{path} sets segmentation of {name}, whose retriever is {system.retriever!r}: only ccpr has one"
        )

    base = folder_of_paths(path)

    def placed(text: str) -> str:
        return str(base / Path(text).expanduser()) if text and text not in (DEFAULT_ADAPTER, NONE) else text

    places: dict[str, Any] = {"index": placed(system.index)}
    for key in ("llm", "encoder", "align_encoder"):  # names unless there is such a folder
        text = getattr(system, key)
        if text and (text.startswith(".") or (base / text).is_dir()):
            places[key] = placed(text)
    return replace(system, adapter={group: placed(text) for group, text in system.adapter.items()}, **places)


def check_at(systems: Sequence[System], cells: Sequence[tuple[str, ...]]) -> None:
    """Raise UserError if a folder that a system needs for one of the directions (source, target and maybe domain) is
    not there: told at once, not after the hours that come before it."""
    for system in (system.at(*cell) for cell in cells for system in systems):
        if system.own_adapter:
            checked_adapter(system.own_adapter)
        if system.index and system.hints in ("retrieved", "shuffled") and retriever_spec(system.retriever).needs_index:
            retriever = read_manifest(Path(system.index)).retriever
            if retriever != system.retriever:
                raise UserError(
                    f"system {system.name} has the retriever {system.retriever!r} and an index for {retriever!r} "
                    f"({system.index}): give one that was built for it"
                )
            if system.only:
                open_index(Path(system.index)).within(system.only)
