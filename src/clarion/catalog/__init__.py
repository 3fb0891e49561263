"""Which notification types an app has and in what words: ready-made ones and its own."""
