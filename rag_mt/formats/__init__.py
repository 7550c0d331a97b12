"""Text in and out: file formats, sentence splitting, and reading a corpus with where every sentence came from."""
