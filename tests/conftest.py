"""Shared set-up: no hub, and the embedded models loaded once for the whole run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A loaded machine draws slowly: that says nothing about the code.
settings.register_profile("rag_mt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rag_mt")
