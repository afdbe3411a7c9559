"""aerie: language models with speculative decoding that never changes the output.

    import aerie
    with aerie.Model("model.gguf") as model, model.session() as session:
        for token in session.stream([{"role": "user", "content": "Why is the sky blue?"}]):
            print(token.text, end="", flush=True)
        print()
        print(session.stats.n_accepted, "of", session.stats.n_drafted, "drafted tokens accepted")

The names are those of aerie.h, which says what they mean. Objects may be shared by threads; a session answers one call at a
time, others wait. Failures are exceptions: `Error`, whose text names the file or parameter, what was found and what would work.
"""
from ._aerie import (Answer, Chunk, Embedder, Error, Image, Model, PicturedPrompt, Session, Stats, Token, Tower,
                     version)

__all__ = ["Answer", "Chunk", "Embedder", "Error", "Image", "Model", "PicturedPrompt", "Session", "Stats", "Token", "Tower",
           "version"]
__version__ = version()
