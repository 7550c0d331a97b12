"""What is used where the user names nothing."""

from typing import Literal

Engine = Literal["auto", "llamacpp", "transformers"]
"""What computes a language model that is loaded here."""
DEFAULT_ENCODER = "embedded:e5-small"
DEFAULT_LLM = "embedded:gemma-3-270m"
CHAT_LLM = "embedded:qwen2.5-coder-1.5b"
"""The embedded language model that follows instructions."""
DEFAULT_PHRASE_MODEL = "ccpr-e5-small"
DEFAULT_XPR_MODEL = "xpr-e5-small"
DEFAULT_RETRIEVER = "ccpr"
"""What finds hints in the sample index where hints are asked for."""
INDEX_RETRIEVER = "memory"
"""What an index of one's own text is built for."""
WITHOUT_INDEX = "none"
"""The retriever where neither an index nor a retriever is named: a small language model translates no better with hints
from the few sentences of the sample corpus."""
DEFAULT_ADAPTER = "auto"
"""The one that comes with rag_mt for the language model and direction, if any."""
DEFAULT_PASSAGE_MODEL = "mdpr-e5-small"
SEARCHING = "sentence, memory, phrases, ccpr, xpr, passage, bm25 or hybrid"
"""The retrievers that have an index, for help texts: the registry loads libraries that help does without."""
LLM_TIMEOUT, LLM_CONCURRENCY = 600.0, 8
"""Of a model server: the seconds in which an answer must come, and the number of requests at once."""

INDEX_AWAY = ("stop", "plain")
"""What a translator does while its index does not answer: it ends with an error, or translates without hints."""
INDEX_PAUSE = 30.0
"""Seconds after which an index that did not answer is asked again."""
SHARD = 1024
"""Sentences of an index that are encoded and stored as one: what a process that is killed may lose."""
FP16 = 16
BITS = (FP16, 8, 4, 2)
"""Bits in which each number of a stored vector may be."""
INT8 = "int8"
"""The number format of encoders alone, on CPUs with VNNI and without bfloat16 (see `retrievers.encoders.int8`)."""
