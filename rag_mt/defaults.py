"""What is used where the user names nothing."""

DEFAULT_ENCODER = "embedded:e5-small"
DEFAULT_LLM = "embedded:gemma-3-270m"
DEFAULT_RETRIEVER = "sentence"
