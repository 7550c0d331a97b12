"""CCPR: cross-lingual contextualized phrase retrieval (Li et al. 2024)."""

from retrievers.ccpr.model import PhraseEncoder, is_phrase_model, open_phrase_encoder, phrase_model_folder
from retrievers.ccpr.units import CcprUnits

__all__ = [
    "CcprUnits",
    "PhraseEncoder",
    "is_phrase_model",
    "load_ccpr",
    "open_phrase_encoder",
    "phrase_model_folder",
]


def load_ccpr(name: str, device: str = "auto", dtype: str = "auto") -> CcprUnits:
    """The unit maker of the phrase model `name`."""
    return CcprUnits(open_phrase_encoder(name, device, dtype))
