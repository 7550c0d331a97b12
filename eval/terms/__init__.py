"""Terms of a glossary in translations: how many are kept to, and what that costs and gains."""
