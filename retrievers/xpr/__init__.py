"""XPR: cross-lingual phrase retrieval from example sentences (Zheng et al. 2022)."""
