"""Units of measure and currencies: what the source names beside a number, the translation names too."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from typing import Literal

from babel import Locale
from babel.core import UnknownLocaleError
from babel.numbers import get_currency_name, get_currency_symbol
from babel.units import UnknownUnitError, format_unit

from rag_mt.base.languages import base_code

_UNITS = {
    "km": "length-kilometer", "cm": "length-centimeter", "mm": "length-millimeter", "kg": "mass-kilogram",
    "mg": "mass-milligram", "ml": "volume-milliliter", "km/h": "speed-kilometer-per-hour", "kB": "digital-kilobyte",
    "KB": "digital-kilobyte", "MB": "digital-megabyte", "GB": "digital-gigabyte", "TB": "digital-terabyte",
    "Hz": "frequency-hertz", "kHz": "frequency-kilohertz", "MHz": "frequency-megahertz", "GHz": "frequency-gigahertz",
    "kW": "power-kilowatt", "MW": "power-megawatt", "°C": "temperature-celsius", "°F": "temperature-fahrenheit",
    "%": "concentr-percent", "px": "graphics-pixel",
}  # fmt: skip
_CURRENCIES = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₽": "RUB", "₺": "TRY"}
WIDTHS: tuple[Literal["long", "short", "narrow"], ...] = ("long", "short", "narrow")
_ALSO = {
    "%": ("prozent", "percent", "per cent", "procent", "prosent", "la sut", "процент", "yüzde"),
    "°C": ("degree", "grad", "stup", "aste", "градус", "derece"),
    "kg": ("kilo", "кило"),
    "cm": ("sentti",),
}
"""Further names, of all languages."""
COUNTRY = 3
"""Letters of an abbreviated country in the name of a currency: `US dollars`, `ABD doları`."""
_SYMBOL = "|".join(re.escape(unit) for unit in sorted((*_UNITS, *_CURRENCIES), key=len, reverse=True))
_MEASURE = re.compile(rf"\d\s?({_SYMBOL})(?![A-Za-z])|([{''.join(map(re.escape, _CURRENCIES))}]|%)\s?\d")


def measures(text: str) -> list[str]:
    """The symbols of units and currencies beside numbers."""
    return list(dict.fromkeys(match[1] or match[2] for match in _MEASURE.finditer(text)))


def lost_units(source: str, target: str, target_language: str) -> list[str]:
    """Symbols of units and currencies beside a number that the translation names neither by their symbols nor by their
    names in its language (CLDR)."""
    folded, code = target.casefold(), base_code(target_language)
    return [s for s in measures(source) if s not in target and not any(name in folded for name in _names(s, code))]


@lru_cache(512)
def _names(symbol: str, code: str) -> tuple[str, ...]:
    """What a unit or currency is called in a language, casefolded, without inflected endings."""
    try:
        locale = Locale.parse(code)
    except (UnknownLocaleError, ValueError):
        return ()
    names: set[str] = set(_ALSO.get(symbol, ()))
    if symbol in _CURRENCIES:
        currency = _CURRENCIES[symbol]
        names |= {currency, get_currency_symbol(currency, locale)}
        for count in (1, 2, 5):
            words = re.split(r"[\s-]+", get_currency_name(currency, count, locale))
            names |= {word for word in (words[0], words[-1]) if len(word) > COUNTRY or not word.isupper()}
    else:
        for width, count in product(WIDTHS, (1, 2, 5)):
            try:
                measure = format_unit(count, _UNITS[symbol], width, locale=locale)
            except UnknownUnitError:
                continue
            names.add(re.sub(r"\d", "", measure).strip())
    stems = {name.casefold()[: max(3, len(name) - 2)] if len(name) > 4 else name.casefold() for name in names}
    return tuple(sorted(stems - {""}))
