"""A fake encoder for tests of bytes and bookkeeping, the real one for tests of retrieval, and parallel sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

import numpy as np
import pytest

from rag_mt.base.types import Encoder, Floats, Kind, Origin, Sentence, TokenStates
from rag_mt.text.words import word_spans

PARALLEL = {
    "en": """The central bank raised interest rates for the third time this year.
The new hospital will open its doors next spring.
Farmers fear a poor harvest after months without rain.
To reset your password, click the link in the email.
The museum is closed on Mondays and public holidays.
Our train was two hours late because of heavy snow.
Scientists discovered an unknown species of frog in the rainforest.
The football team won the championship after extra time.
Children under six travel free of charge.
The government plans to build ten thousand flats.
Drink plenty of water and avoid the midday sun.
The court found the former minister guilty of corruption.""",
    "de": """Die Zentralbank hat die Zinsen zum dritten Mal in diesem Jahr erhöht.
Das neue Krankenhaus öffnet im nächsten Frühling seine Türen.
Nach Monaten ohne Regen befürchten die Bauern eine schlechte Ernte.
Um Ihr Passwort zurückzusetzen, klicken Sie auf den Link in der E-Mail.
Das Museum ist montags und an Feiertagen geschlossen.
Unser Zug hatte wegen starken Schneefalls zwei Stunden Verspätung.
Wissenschaftler haben im Regenwald eine unbekannte Froschart entdeckt.
Die Fußballmannschaft gewann die Meisterschaft nach Verlängerung.
Kinder unter sechs Jahren fahren kostenlos.
Die Regierung will zehntausend Wohnungen bauen.
Trinken Sie viel Wasser und meiden Sie die Mittagssonne.
Das Gericht sprach den ehemaligen Minister der Korruption schuldig.""",
    "cs": """Centrální banka letos už potřetí zvýšila úrokové sazby.
Nová nemocnice otevře své dveře příští jaro.
Zemědělci se po měsících bez deště obávají špatné úrody.
Chcete-li obnovit heslo, klikněte na odkaz v e-mailu.
Muzeum je v pondělí a o svátcích zavřené.
Náš vlak měl kvůli hustému sněžení dvě hodiny zpoždění.
Vědci objevili v deštném pralese neznámý druh žáby.
Fotbalový tým vyhrál mistrovství po prodloužení.
Děti do šesti let cestují zdarma.
Vláda plánuje postavit deset tisíc bytů.
Pijte hodně vody a vyhýbejte se polednímu slunci.
Soud uznal bývalého ministra vinným z korupce.""",
    "ru": """Центральный банк в третий раз за год повысил процентные ставки.
Новая больница откроет свои двери следующей весной.
После месяцев без дождя фермеры опасаются плохого урожая.
Чтобы сбросить пароль, нажмите на ссылку в письме.
Музей закрыт по понедельникам и в праздничные дни.
Наш поезд опоздал на два часа из-за сильного снегопада.
Учёные обнаружили в тропическом лесу неизвестный вид лягушек.
Футбольная команда выиграла чемпионат в дополнительное время.
Дети до шести лет ездят бесплатно.
Правительство планирует построить десять тысяч квартир.
Пейте много воды и избегайте полуденного солнца.
Суд признал бывшего министра виновным в коррупции.""",
    "tr": """Merkez bankası bu yıl üçüncü kez faiz oranlarını artırdı.
Yeni hastane gelecek bahar kapılarını açacak.
Çiftçiler aylarca süren kuraklığın ardından kötü bir hasattan korkuyor.
Parolanızı sıfırlamak için e-postadaki bağlantıya tıklayın.
Müze pazartesi günleri ve resmi tatillerde kapalıdır.
Trenimiz yoğun kar yüzünden iki saat gecikti.
Bilim insanları yağmur ormanında bilinmeyen bir kurbağa türü keşfetti.
Futbol takımı uzatmaların ardından şampiyonluğu kazandı.
Altı yaşından küçük çocuklar ücretsiz seyahat eder.
Hükümet on bin konut inşa etmeyi planlıyor.
Bol su için ve öğle güneşinden kaçının.
Mahkeme eski bakanı yolsuzluktan suçlu buldu.""",
}


def _seeded(text: str, width: int) -> Floats:
    vector = np.random.default_rng(crc32(text.encode())).standard_normal(width).astype(np.float32)
    return vector / np.linalg.norm(vector)


class FakeEncoder:
    """Random vectors that depend on the text alone; `encoded` counts the texts."""

    id = "fake"
    dimension = 16
    hidden = 8
    layers = 3

    def __init__(self, fingerprint: str = "f1") -> None:
        self.fingerprint = fingerprint
        self.encoded = 0

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        self.encoded += len(texts)
        return np.array([_seeded(t, self.dimension) for t in texts], np.float32).reshape(-1, self.dimension)

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        self.encoded += len(texts)
        for text in texts:
            spans = word_spans(text)
            rows = [_seeded(f"{layer} {text[a:b]}", self.hidden) for a, b in spans.tolist()]
            yield TokenStates(np.array(rows, np.float32).reshape(-1, self.hidden), spans)


@pytest.fixture(scope="session")
def fake() -> Callable[..., FakeEncoder]:
    """Makes fake encoders."""
    return FakeEncoder


@pytest.fixture(scope="session")
def e5() -> Encoder:
    """The embedded encoder."""
    from retrievers.encoders.encoder import open_encoder

    return open_encoder("embedded:e5-small")


@pytest.fixture(scope="session")
def parallel() -> dict[str, list[Sentence]]:
    """Sentences by language, the same in each."""
    return {
        code: [Sentence(line, code, Origin(f"{code}.txt", n)) for n, line in enumerate(lines.splitlines(), 1)]
        for code, lines in PARALLEL.items()
    }
