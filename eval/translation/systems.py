"""The systems that translation is measured with, named in a TOML file.

    [defaults]                      # what every system has unless it says otherwise
    llm = "embedded:gemma-3-270m"
    dtype = "float32"

    [systems.plain]
    retriever = "none"

    [systems.ccpr]
    index = "../indexes/{tgt}"      # relative to this file; {src}, {tgt} and {group} are filled in
    adapter = { to_en = "../adapters/ccpr-to-en", from_en = "../adapters/ccpr-from-en" }

    [systems.upper]
    like = "ccpr"
    hints = "oracle"

An `index` that is left out is the sample index. `hints` says what becomes of them: `retrieved`; `none`, to see what
dropping them changes; `shuffled`, each sentence gets those of others; `oracle`, phrases cut from the reference by word
alignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from prompts.builder import WRAPPERS
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_ENCODER, DEFAULT_LLM, DEFAULT_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_toml
from rag_mt.base.languages import direction_group
from rag_mt.models.adapters import checked_adapter
from rag_mt.models.loading import DTYPES, Quantization
from rag_mt.translation.translator import NONE, Adapters, chosen_adapters
from retrievers.ccpr.retriever import Segmentation
from retrievers.index.manifest import read_manifest
from retrievers.registry import retriever_spec

Hints = Literal["retrieved", "none", "shuffled", "oracle"]
ALIGNERS = ("encoder", "eflomal")
GROUPS = ("to_en", "from_en", "other")
EXAMPLE = Path(__file__).parents[2] / "configs" / "systems.toml"


@dataclass(frozen=True)
class System:
    """A way to translate. `adapter` has a folder for each group of directions that has one, or `auto` for the adapter
    that comes with rag_mt. `plain_adapter`, which may name `{group}`, is the one for sentences without hints: `auto`
    for the plain one that comes with rag_mt where `adapter` is `auto` too, `none` for no other (as where no hints are
    ever shown). `cut_off` is the least score of a hit that is shown (of CCPR: its confidence), 0 for the index's own.
    `segmentation`, of CCPR, says what is looked up: the phrases that it sees, or `ngrams`, all spans of up to four
    words; the hits of either are judged by the same confidence model.

    For `hints = "oracle"`: `aligner` finds the words that belong together, by a layer of `align_encoder` or, eflomal,
    learning from the parallel text `along` (`{pair}` is such as `de-en`) too; phrases have up to `oracle_words` words.
    """

    name: str = ""
    retriever: str = DEFAULT_RETRIEVER
    index: str = ""
    encoder: str = ""
    cut_off: float = 0.0
    segmentation: Segmentation = "learned"
    wrapper: str = "auto"
    llm: str = DEFAULT_LLM
    adapter: Mapping[str, str] = field(default_factory=dict)
    plain_adapter: str = DEFAULT_ADAPTER
    device: str = "auto"
    dtype: str = "float32"
    quantization: str = "none"
    max_new_tokens: int = 256
    batch_size: int = 16
    hints: Hints = "retrieved"
    seed: int = 12345
    aligner: str = "encoder"
    align_encoder: str = DEFAULT_ENCODER
    align_layer: int = 6
    along: str = ""
    oracle_words: int = 4

    def at(self, source: str, target: str) -> System:
        """The system for one direction: placeholders are filled in, and `adapter` holds at most that of its group."""
        group = direction_group(source, target)
        other = source if target == "en" else target
        names = {"{src}": source, "{tgt}": target, "{group}": group, "{pair}": f"{other}-en"}

        def filled(text: str) -> str:
            for name, value in names.items():
                text = text.replace(name, value)
            return text

        if self.adapter and group not in self.adapter:
            raise UserError(
                f"system {self.name} has no adapter for {source}-{target}: add adapter.{group} to it, or leave all out"
            )
        named = filled(self.adapter[group]) if self.adapter else None
        chosen = chosen_adapters(named, self.llm, self.retriever, source, target)
        adapter = {group: chosen.adapter} if chosen.adapter else {}
        plain = filled(self.plain_adapter)
        if self.hints == "none" or not retriever_spec(self.retriever).needs_index:
            plain = NONE
        elif plain == DEFAULT_ADAPTER:
            plain = chosen.plain_adapter or NONE
        index, encoder, along = filled(self.index), filled(self.encoder), filled(self.along)
        return replace(self, index=index, encoder=encoder, along=along, adapter=adapter, plain_adapter=plain)

    @property
    def own_adapters(self) -> Adapters:
        """The adapters of a system `at` a direction."""
        plain = None if self.plain_adapter == NONE else self.plain_adapter
        return Adapters(next(iter(self.adapter.values()), None), plain)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; folders by their last name only, because a report says nothing about a machine."""
        made = asdict(self) | {"adapter": {group: _short(text) for group, text in self.adapter.items()}}
        names = ("index", "encoder", "llm", "plain_adapter", "along", "align_encoder")
        return made | {name: _short(made[name]) for name in names}


def _short(text: str) -> str:
    return Path(text).name if text.startswith(("/", ".", "~")) or Path(text).is_dir() else text


def read_systems(path: Path, names: str | None = None) -> list[System]:
    """The systems of a file, or those of `plain,ccpr` in that order.

    Raises UserError for a file that is missing or no TOML, and for systems and settings that do not exist, are of
    another type or do not go together.
    """
    found = read_toml(path, "file of systems", EXAMPLE)
    for section in sorted(found.keys() - {"defaults", "systems"}):
        raise UserError(f"{path} has a section [{section}] that is not known: expected [defaults] and [systems.NAME]")
    tables = found.get("systems", {})
    if not isinstance(tables, dict) or not tables or not all(isinstance(own, dict) for own in tables.values()):
        raise UserError(f"{path} names no system: expected sections such as [systems.plain]")
    chosen = list(dict.fromkeys(names.split(","))) if names is not None else list(tables)
    for name in chosen:
        if name not in tables:
            raise UserError(f"{path} has no system {name!r}: choose from {', '.join(tables)}")
        if not name.replace("-", "").replace("_", "").isalnum():
            raise UserError(f"system {name!r} of {path} is no name for a folder: use letters, digits, - and _")
    defaults = found.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UserError(f"{path} sets defaults to {defaults!r}: expected a section [defaults]")
    return [_system(path, name, _joined(path, defaults, tables, name), tables[name]) for name in chosen]


def _joined(path: Path, defaults: Mapping[str, Any], tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a system with those of the ones that it is `like` and the defaults below."""
    made: dict[str, Any] = {}
    seen: list[str] = []
    while name:
        if name in seen:
            raise UserError(f"{path}: the systems {', '.join(seen)} are like each other: leave one `like` out")
        if name not in tables:
            raise UserError(f"{path}: system {seen[-1]} is like {name!r}, which is not there: expected a system's name")
        seen.append(name)
        made = {**tables[name], "like": "", **made}
        name = tables[name].get("like", "")
    made.pop("like", None)
    return {**defaults, **made}


def _system(path: Path, name: str, values: Mapping[str, Any], own: Mapping[str, Any]) -> System:
    defaults = System()
    known = [f.name for f in fields(System) if f.name != "name"]
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{path} sets {key} of {name}, which does not exist: expected one of {', '.join(known)}")
        default = getattr(defaults, key)
        if key == "adapter" and isinstance(value, str):
            value = dict.fromkeys(GROUPS, value) if value else {}
        kind: Any = Mapping if key == "adapter" else (int, float) if key == "cut_off" else type(default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UserError(f"{path} sets {key} of {name} to {value!r}: expected a value such as {default!r}")
        made[key] = value
    _check(path, name, made, own)
    base = path.parent
    made["adapter"] = {group: _placed(base, text) for group, text in made.get("adapter", {}).items()}
    for key in ("index", "along", "plain_adapter"):
        made[key] = _placed(base, made.get(key, getattr(defaults, key)))
    for key in ("llm", "encoder", "align_encoder"):  # names unless there is such a folder
        text = made.get(key, "")
        if text and (text.startswith(".") or (base / text).is_dir()):
            made[key] = _placed(base, text)
    return System(name=name, **made)


def _placed(base: Path, text: str) -> str:
    return str(base / Path(text).expanduser()) if text and text not in (DEFAULT_ADAPTER, NONE) else text


def _check(path: Path, name: str, made: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise UserError for values that are not allowed; `own` are those that the system's section sets itself."""
    choices = {
        "hints": get_args(Hints),
        "aligner": ALIGNERS,
        "segmentation": get_args(Segmentation),
        "wrapper": ("auto", *WRAPPERS),
        "dtype": ("auto", *DTYPES),
        "quantization": get_args(Quantization),
    }
    for key, allowed in choices.items():
        if key in made and made[key] not in allowed:
            raise UserError(f"{path} sets {key} of {name} to {made[key]!r}: expected one of {', '.join(allowed)}")
    for group, text in made.get("adapter", {}).items():
        if group not in GROUPS or not isinstance(text, str):
            raise UserError(f"{path} sets adapter.{group} of {name}: expected a folder for {', '.join(GROUPS)}")
    for key in ("max_new_tokens", "batch_size", "oracle_words"):
        if made.get(key, 1) < 1:
            raise UserError(f"{path} sets {key} of {name} to {made[key]}: expected at least 1")
    for key in ("seed", "align_layer"):
        if made.get(key, 0) < 0:
            raise UserError(f"{path} sets {key} of {name} to {made[key]}: expected at least 0")
    if not isfinite(made.get("cut_off", 0)):
        raise UserError(f"{path} sets cut_off of {name} to {made['cut_off']}: expected a finite number such as 0.65")
    retriever = made.get("retriever", DEFAULT_RETRIEVER)
    retriever_spec(retriever)
    if own.get("segmentation", "learned") != "learned" and retriever != "ccpr":
        raise UserError(f"{path} sets segmentation of {name}, whose retriever is {retriever!r}: only ccpr has one")


def check_at(systems: Sequence[System], directions: Sequence[tuple[str, str]]) -> None:
    """Raise UserError if a folder that a system needs for one of the directions is not there: said at once, not after
    the hours that come before it."""
    for source, target in directions:
        for system in systems:
            own = system.at(source, target)
            for adapter in filter(None, own.own_adapters):
                checked_adapter(adapter)
            if own.index and own.hints in ("retrieved", "shuffled") and retriever_spec(own.retriever).needs_index:
                found = read_manifest(Path(own.index)).retriever
                if found != own.retriever:
                    raise UserError(
                        f"system {own.name} has the retriever {own.retriever!r} and an index for {found!r} "
                        f"({own.index}): give one that was built for it"
                    )
            if own.hints == "oracle" and own.along and not Path(own.along).is_file():
                raise UserError(f"system {own.name} aligns along with {own.along}, which is not there: give other text")
