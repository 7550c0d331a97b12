"""Language codes with their English and native names, from CLDR (the babel package)."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache

from babel import Locale, UnknownLocaleError
from babel.localedata import locale_identifiers

from rag_mt.base.errors import UserError

WMT16 = ("de", "cs", "fi", "ru", "ro", "tr")
"""The languages that WMT16 pairs with English; both ways make the 12 directions of the papers."""

LONGEST_NAME = 35
"""Characters: no code and no English name of a language is longer."""

DIRECTIONS = tuple((x, "en") for x in WMT16) + tuple(("en", x) for x in WMT16)

_EXPECTED = f"expected a code such as {', '.join(('en', *WMT16))}, or a name such as German or Deutsch"


@dataclass(frozen=True, slots=True)
class Language:
    """A language: its code as used everywhere, English name, native name and writing direction."""

    code: str
    name: str
    native: str
    right_to_left: bool = False


def language(text: str) -> Language:
    """The language of a code (`de`, `pt-BR`, `zh-Hant`), an English name (`German`) or, for those of WMT16, its own
    name (`Deutsch`), blanks around it aside. Raises UserError for anything else and proposes what is near it."""
    name = text.strip()
    if found := language_or_none(name):
        return found
    if len(name) > LONGEST_NAME:
        raise UserError(f"unknown language of {len(name)} characters: {_EXPECTED}")
    raise _unknown(name)


def language_or_none(text: str) -> Language | None:
    """The language that `language` finds, None where that has to raise an error."""
    name = text.strip()
    return _known(name) if len(name) <= LONGEST_NAME else None


# Clients choose the texts that come here, so neither their length nor their number may be without a bound.
@lru_cache(1024)
def _known(text: str) -> Language | None:
    code = _codes_by_name().get(text.casefold(), text)
    try:
        locale = Locale.parse(code, sep="-" if "-" in code else "_")
        if locale.language == code.lower() or len(code) <= 3:
            locale = Locale(locale.language)  # `deu` resolves to German in Germany: the country was not asked for
    except (UnknownLocaleError, ValueError):
        return None
    name, native = locale.get_display_name("en"), locale.get_display_name(locale)
    if not name or not native:
        return None
    native = native[0].upper() + native[1:]
    return Language(str(locale).replace("_", "-"), name, native, locale.text_direction == "rtl")


def base_code(code: str) -> str:
    """The code without region and script: `pt` for `pt-BR`."""
    return code.replace("_", "-").split("-")[0].lower()


def direction_group(source: str, target: str) -> str:
    """`to_en`, `from_en` or, where not just one of both languages is English, `other`."""
    codes = [base_code(source), base_code(target)]
    return "other" if codes.count("en") != 1 else "to_en" if codes[1] == "en" else "from_en"


@cache
def _codes_by_name() -> dict[str, str]:
    english = Locale("en").languages
    known = {i for i in locale_identifiers() if "_" not in i}
    own = {str(Locale(code).get_display_name(code)).casefold(): code for code in ("en", *WMT16)}
    return own | {name.casefold(): code for code, name in english.items() if code in known}


def _unknown(text: str) -> UserError:
    names = _codes_by_name()
    near = get_close_matches(text.casefold(), names, n=1, cutoff=0.75)
    proposal = f"; did you mean `{names[near[0]]}` ({near[0].title()})?" if near else ""
    return UserError(f"unknown language {text!r}: {_EXPECTED}{proposal}")
