"""Translate with a large language model that is shown how the target language already says it.

    from rag_mt import Index, Translator

Nothing is loaded before it is asked for.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_mt.base.errors import UserError
    from rag_mt.base.only import Only
    from rag_mt.base.types import Hint, TranslatedText, Translation
    from rag_mt.translation.index import Index
    from rag_mt.translation.translator import Translator

__version__ = "0.1.0"
__all__ = ["Hint", "Index", "Only", "TranslatedText", "Translation", "Translator", "UserError", "__version__"]

_HOMES = {
    "Hint": "rag_mt.base.types",
    "Index": "rag_mt.translation.index",
    "Only": "rag_mt.base.only",
    "TranslatedText": "rag_mt.base.types",
    "Translation": "rag_mt.base.types",
    "Translator": "rag_mt.translation.translator",
    "UserError": "rag_mt.base.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rag_mt' has no attribute {name!r}")
    # Threads of torch that spin while they wait for others take a busy machine's time. They sleep, unless torch is
    # loaded already or the variable is set.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
