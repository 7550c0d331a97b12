"""Glossaries: files of terms with the translations that are wanted and unwanted, and where both occur in texts."""
