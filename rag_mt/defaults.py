"""What is used where the user names nothing."""

DEFAULT_ENCODER = "embedded:e5-small"
DEFAULT_LLM = "embedded:gemma-3-270m"
DEFAULT_PHRASE_MODEL = "ccpr-e5-small"
DEFAULT_RETRIEVER = "ccpr"
DEFAULT_ADAPTER = "auto"
"""The one that comes with rag_mt for the language model, retriever and direction, if any."""
DEFAULT_PASSAGE_MODEL = "mdpr-e5-small"
