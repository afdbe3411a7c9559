"""What aerie/__init__.py exports, over libaerie by cffi in ABI mode: nothing is compiled where this is installed.

_cdef.py, the declarations of aerie.h, and the library are put beside this file when the wheel is made (hatch_build.py).
"""
from __future__ import annotations

import codecs
import dataclasses
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

import cffi

from ._cdef import CDEF

ffi = cffi.FFI()
ffi.cdef(CDEF)
lib: Any = ffi.dlopen(os.environ.get("AERIE_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                      "libaerie.so.0"))

Prompt = Union[str, Sequence[int], Sequence[Mapping[str, str]], "PicturedPrompt", Sequence["Chunk"]]


class Error(RuntimeError):
    """A call that failed: a sentence, and `status`, the name of the aerie_status without its prefix ("ERROR_IO")."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        names = {value: name for name, value in ffi.typeof("aerie_status").relements.items()}
        self.status = names.get(status, str(status)).removeprefix("AERIE_")


def _check(status: int, error: Any) -> None:
    if status != lib.AERIE_OK:
        text = ffi.string(error.text) if error.status == status else b""
        raise Error(status, (text or ffi.string(lib.aerie_status_text(status))).decode("utf-8", "replace"))


def _init(name: str) -> Any:
    struct = ffi.new(f"aerie_{name} *")
    getattr(lib, f"aerie_{name}_init")(struct, ffi.sizeof(struct[0]))
    return struct


def _put(struct: Any, name: str, value: Any) -> None:
    """Sets a field; an error names it."""
    try:
        setattr(struct, name, value)
    except (TypeError, OverflowError) as error:
        raise type(error)(f"{name}={value!r}: {error}") from None
    if name == "temperature" and value < 0:
        raise ValueError(f"temperature={value!r}: 0 always takes the likeliest token, above 0 tokens are drawn")


def _set(struct: Any, kind: str, values: Mapping[str, Any]) -> None:
    known = {name for name, _ in ffi.typeof(struct).fields} - {"size", "reserved"}
    for name, value in values.items():
        if name not in known:
            raise TypeError(f"aerie_{kind} has no {name!r}; it has {', '.join(sorted(known))}")
        _put(struct, name, value)


def version() -> str:
    """The library's version."""
    return ffi.string(lib.aerie_version()).decode()


@dataclasses.dataclass(frozen=True)
class Stats:
    """Figures of an answer, as of aerie_stats."""
    n_prompt: int
    n_cached: int
    n_generated: int
    n_passes: int
    n_drafted: int
    n_accepted: int
    accepted_at: tuple[int, ...]
    drafted_at: tuple[int, ...]
    prompt_seconds: float
    decode_seconds: float
    target_seconds: float
    draft_seconds: float
    stop: str
    """Why it ended: "EOG", "LENGTH", "CONTEXT", "CALLER", "STRING", "GRAMMAR", "DEAD_END"."""

    @property
    def acceptance(self) -> float:
        """Accepted of drafted tokens; 0 when nothing was drafted."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0


def _stats(s: Any) -> Stats:
    stop = ffi.string(ffi.cast("aerie_stop", s.stop)).removeprefix("AERIE_STOP_")
    n = max((i + 1 for i, k in enumerate(s.drafted_at) if k), default=0)
    plain = {f.name: getattr(s, f.name) for f in dataclasses.fields(Stats) if f.name not in ("stop", "accepted_at",
                                                                                             "drafted_at")}
    return Stats(**plain, stop=stop, accepted_at=tuple(s.accepted_at[0:n]), drafted_at=tuple(s.drafted_at[0:n]))


@dataclasses.dataclass(frozen=True)
class Token:
    """A token of an answer. Text that may begin a stop string, or is not a whole character yet, comes with a later token."""
    id: int
    text: str
    draft_depth: int
    """0: decoded by the model; k: the k-th token of an accepted draft."""
    logprob: float
    """0 without n_logprobs."""


@dataclasses.dataclass(frozen=True)
class Answer:
    text: str
    tokens: list[int]
    stats: Stats


class _Owner:
    """Something of the library that ends with `close`, a `with` block or the last reference."""
    _free: Any = None
    _it: Any = None

    def _pointer(self) -> Any:
        if self._it is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._it

    def close(self) -> None:
        it, self._it = self._it, None
        if it is not None:
            self._free(it)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class _Head(_Owner):
    _free = staticmethod(lambda it: lib.aerie_drafter_head_free(it))

    def __init__(self, model: Any, path: bytes):
        head, error = ffi.new("aerie_drafter_head **"), ffi.new("aerie_error *")
        _check(lib.aerie_drafter_head_load(head, model, path, ffi.NULL, error), error)
        self._it = head[0]


def _c_text(data: bytes, what: str) -> bytes:
    """For a parameter that ends at a NUL: what follows one would be lost without a word."""
    if b"\0" in data:
        raise ValueError(f"{what} holds a NUL character")
    return data


class Model(_Owner):
    """A GGUF file. params: fields of aerie_model_params, such as n_threads, mmap, vocab_only."""
    _free = staticmethod(lambda it: lib.aerie_model_free(it))

    def __init__(self, path: str | os.PathLike[str], **params: Any):
        self.path = os.fspath(path)
        self._sessions = 0
        given = _init("model_params")
        _set(given[0], "model_params", params)
        model, error = ffi.new("aerie_model **"), ffi.new("aerie_error *")
        _check(lib.aerie_model_load(model, _c_text(os.fsencode(self.path), "a path"), given, error), error)
        self._it = model[0]

    def close(self) -> None:
        """Refused while sessions are open on it."""
        if self._it is not None and self._sessions:
            raise ValueError("sessions are open on this Model; close them first")
        super().close()

    def __del__(self) -> None:  # sessions hold a reference, so there are none
        _Owner.close(self)

    @property
    def info(self) -> dict[str, Any]:
        """aerie_model_info by field."""
        it = ffi.new("aerie_model_info *")
        lib.aerie_model_info_get(self._pointer(), it, ffi.sizeof(it[0]))
        values = {name: getattr(it, name) for name, _ in ffi.typeof(it[0]).fields}
        return {name: (None if value == ffi.NULL else ffi.string(value).decode("utf-8", "replace")) if isinstance(
            value, ffi.CData)
                else value for name, value in values.items()}

    def tokenize(self, text: str | bytes, add_special: bool = True, parse_special: bool = False) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        tokens, n, error = ffi.new("int32_t **"), ffi.new("size_t *"), ffi.new("aerie_error *")
        _check(lib.aerie_model_tokenize(self._pointer(), data, len(data), add_special, parse_special, tokens, n, error), error)
        return self._take(tokens, n)

    def detokenize(self, tokens: Iterable[int], special: bool = False) -> bytes:
        ids = ffi.new("int32_t[]", list(tokens))
        text, n, error = ffi.new("char **"), ffi.new("size_t *"), ffi.new("aerie_error *")
        _check(lib.aerie_model_detokenize(self._pointer(), ids, len(ids), special, text, n, error), error)
        try:
            return bytes(ffi.buffer(text[0], n[0]))
        finally:
            lib.aerie_free(text[0])

    def chat_tokens(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation by the model's chat template, ready for an answer."""
        kept = [(ffi.new("char[]", _c_text(m["role"].encode(), "a role")),
                 ffi.new("char[]", _c_text(m["content"].encode(), "a message"))) for m in messages]
        items = ffi.new("aerie_message[]", max(len(kept), 1))
        for item, (role, content) in zip(items, kept):
            item.role, item.content = role, content
        chat = ffi.new("aerie_chat *")
        lib.aerie_chat_init(chat, ffi.sizeof(chat[0]))
        chat.turns, chat.n_turns = items, len(kept)
        tokens, n_tokens, error = ffi.new("int32_t **"), ffi.new("size_t *"), ffi.new("aerie_error *")
        _check(lib.aerie_model_chat_tokens(self._pointer(), chat, tokens, n_tokens, ffi.NULL, ffi.NULL, error), error)
        return self._take(tokens, n_tokens)

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Text as it is, ids, or messages by the chat template."""
        if isinstance(prompt, str):
            return self.tokenize(prompt, parse_special=True)
        items = list(prompt)
        return self.chat_tokens(items) if items and isinstance(items[0], Mapping) else items  # type: ignore[arg-type]

    def session(self, **params: Any) -> Session:
        """A session: Session(model, ...)."""
        return Session(self, **params)

    def embedder(self, **params: Any) -> Embedder:
        """An embedder: Embedder(model, ...)."""
        return Embedder(self, **params)

    @staticmethod
    def _take(tokens: Any, n: Any) -> list[int]:
        try:
            return list(ffi.unpack(tokens[0], n[0])) if n[0] else []
        finally:
            lib.aerie_free(tokens[0])


class Embedder(_Owner):
    """Vectors of texts. pooling: "auto", "mean", "cls", "last" or "rank". params: fields of aerie_embedder_params, such as
    n_ctx, normalize (2: to length 1, -1: not at all)."""
    _free = staticmethod(lambda it: lib.aerie_embedder_free(it))

    def __init__(self, model: Model, pooling: str = "auto", **params: Any):
        given, error, kind = _init("embedder_params"), ffi.new("aerie_error *"), ffi.new("aerie_pooling *")
        _set(given[0], "embedder_params", params)
        if not lib.aerie_pooling_parse(_c_text(pooling.encode(), "a pooling"), kind):
            raise ValueError(f"there is no pooling {pooling!r}; it is auto, mean, cls, last or rank")
        given.pooling = kind[0]
        embedder = ffi.new("aerie_embedder **")
        _check(lib.aerie_embedder_create(embedder, model._pointer(), given, error), error)
        self._it = embedder[0]
        self.model = model
        model._sessions += 1
        self._lock = threading.Lock()

    def close(self) -> None:
        if self._it is not None:
            super().close()
            self.model._sessions -= 1

    @property
    def n_out(self) -> int:
        """Numbers of a vector."""
        return lib.aerie_embedder_n_out(self._pointer())

    def embed(self, texts: Sequence[str | Sequence[int]]) -> list[list[float]]:
        """A vector for each text, or list of token ids."""
        if isinstance(texts, str):
            raise TypeError("embed() takes a list of texts; found one text")
        ids = [self.model.tokenize(text) if isinstance(text, str) else list(text) for text in texts]
        kept = [ffi.new("int32_t[]", one) for one in ids]
        items = ffi.new("aerie_embed_text[]", max(len(kept), 1))
        for item, tokens, one in zip(items, kept, ids):
            item.tokens, item.n_tokens = tokens, len(one)
        return self._run(items, len(kept))

    def rank(self, query: str, documents: Sequence[str]) -> list[float]:
        """How well each document answers the query: of a reranker, with pooling "rank"."""
        kept, asked = [], query.encode()
        items = ffi.new("aerie_embed_text[]", max(len(documents), 1))
        for item, document in zip(items, documents):
            text = document.encode()
            tokens, n, first = ffi.new("int32_t **"), ffi.new("size_t *"), ffi.new("size_t *")
            error = ffi.new("aerie_error *")
            _check(lib.aerie_model_rerank_tokens(self.model._pointer(), asked, len(asked), text, len(text), tokens, n, first,
                                                 error),
                   error)
            kept.append(ffi.gc(tokens[0], lib.aerie_free))
            item.tokens, item.n_tokens, item.n_first = kept[-1], n[0], first[0]
        return [vector[0] for vector in self._run(items, len(kept))]

    def _run(self, items: Any, n: int) -> list[list[float]]:
        with self._lock:
            width, error = self.n_out, ffi.new("aerie_error *")
            vectors = ffi.new("float[]", max(n * width, 1))
            if n:
                _check(lib.aerie_embedder_embed(self._pointer(), items, n, vectors, error), error)
            return [list(ffi.unpack(vectors + i * width, width)) for i in range(n)]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A part of a prompt, as of aerie_chunk: tokens, or rows that stand for none, of n_embd numbers each."""
    tokens: Sequence[int] = ()
    rows: Sequence[Sequence[float]] = ()
    group: bool = False
    """The rows see each other."""
    n_across: int = 0
    """Not 0: they are a grid of so many columns."""


def _chunks(chunks: Sequence[Chunk]) -> tuple[Any, Any]:
    """The list as the library takes it, and what it points to."""
    kept = []
    items = ffi.new("aerie_chunk[]", max(len(chunks), 1))
    for item, chunk in zip(items, chunks):
        tokens = ffi.new("int32_t[]", list(chunk.tokens))
        rows = ffi.new("float[]", [x for row in chunk.rows for x in row])
        if len({len(row) for row in chunk.rows}) > 1:
            raise ValueError("the rows of a chunk are not of one length")
        kept.append((tokens, rows))
        if chunk.tokens:
            item.tokens, item.n_tokens = tokens, len(tokens)
        if chunk.rows:
            item.rows, item.n_rows = rows, len(chunk.rows)
        item.group, item.n_across = chunk.group, chunk.n_across
    return items, kept


class Image(_Owner):
    """A picture: the bytes of a JPEG, PNG or WebP file; with width and height the bytes of its pixels, red, green and blue."""
    _free = staticmethod(lambda it: lib.aerie_image_free(it))

    def __init__(self, data: bytes, width: int = 0, height: int = 0):
        image, error = ffi.new("aerie_image **"), ffi.new("aerie_error *")
        if width or height:
            if len(data) != 3 * width * height:
                raise ValueError(f"{width} x {height} pixels are {3 * width * height} bytes; found {len(data)}")
            _check(lib.aerie_image_copy(image, width, height, ffi.from_buffer("uint8_t[]", data), error), error)
        else:
            _check(lib.aerie_image_read(image, ffi.from_buffer(data), len(data), ffi.NULL, error), error)
        self._it = image[0]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        sides = ffi.new("uint32_t[2]")
        lib.aerie_image_size(self._pointer(), sides, sides + 1)
        return sides[0], sides[1]


class PicturedPrompt(_Owner):
    """A prompt with pictures, made by a Tower, for stream() and generate()."""
    _free = staticmethod(lambda it: lib.aerie_prompt_free(it))

    def __init__(self, it: Any):
        self._it = it

    def __len__(self) -> int:
        """Positions that it takes."""
        return lib.aerie_prompt_n_positions(self._pointer())


class Tower(_Owner):
    """What reads pictures for a model: an mmproj file. params: fields of aerie_tower_params, such as n_threads, max_tokens."""
    _free = staticmethod(lambda it: lib.aerie_tower_free(it))
    _mark = "\uE000image\uE001"  # characters for private use

    def __init__(self, model: Model, path: str | os.PathLike[str], **params: Any):
        given, error, tower = _init("tower_params"), ffi.new("aerie_error *"), ffi.new("aerie_tower **")
        _set(given[0], "tower_params", params)
        _check(lib.aerie_tower_load(tower, model._pointer(), _c_text(os.fsencode(path), "a path"), given, error), error)
        self._it = tower[0]
        self.model = model
        model._sessions += 1

    def close(self) -> None:
        if self._it is not None:
            super().close()
            self.model._sessions -= 1

    @property
    def type(self) -> str:
        return ffi.string(lib.aerie_tower_type(self._pointer())).decode()

    def n_rows(self, width: int, height: int) -> int:
        """How many positions a picture of this size takes."""
        n, error = ffi.new("uint32_t *"), ffi.new("aerie_error *")
        _check(lib.aerie_tower_n_rows(self._pointer(), width, height, n, error), error)
        return n[0]

    def prompt(self, text: str, images: Sequence[Image]) -> PicturedPrompt:
        """A text as it is; pictures stand where it has <__media__>, or before it."""
        data, prompt, error = text.encode(), ffi.new("aerie_prompt **"), ffi.new("aerie_error *")
        _check(lib.aerie_tower_prompt(self._pointer(), data, len(data), ffi.NULL, [i._pointer() for i in images], len(images),
                                      ffi.NULL, ffi.NULL, prompt, error), error)
        return PicturedPrompt(prompt[0])

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> PicturedPrompt:
        """A conversation by the model's chat template. A message's content is a text, or a list of texts and Images."""
        images: list[Image] = []
        turns = []
        for message in messages:
            parts = [message["content"]] if isinstance(message["content"], str) else message["content"]
            images += [part for part in parts if isinstance(part, Image)]
            turns.append((message["role"], "".join(self._mark if isinstance(p, Image) else p for p in parts)))
        kept = [(ffi.new("char[]", _c_text(role.encode(), "a role")), ffi.new("char[]", _c_text(text.encode(), "a message")))
                for role, text in turns]
        items = ffi.new("aerie_message[]", max(len(kept), 1))
        for item, (role, text) in zip(items, kept):
            item.role, item.content = role, text
        chat, prompt, error = ffi.new("aerie_chat *"), ffi.new("aerie_prompt **"), ffi.new("aerie_error *")
        lib.aerie_chat_init(chat, ffi.sizeof(chat[0]))
        chat.turns, chat.n_turns = items, len(kept)
        _check(lib.aerie_tower_chat(self._pointer(), chat, self._mark.encode(), [i._pointer() for i in images], len(images),
                                    ffi.NULL, ffi.NULL, prompt, error), error)
        return PicturedPrompt(prompt[0])


class Session(_Owner):
    """Answers of a model, one at a time. Prompts that begin as an earlier one did are not computed again.

    drafter: "auto" (a head beside the model or MTP blocks in it, and n-grams), "ngram", "none", or the path of a head.
    params: fields of aerie_session_params, such as n_ctx, n_threads.
    """
    _free = staticmethod(lambda it: lib.aerie_session_free(it))

    def __init__(self, model: Model, drafter: str | os.PathLike[str] = "auto", **params: Any):
        given, error = _init("session_params"), ffi.new("aerie_error *")
        _set(given[0], "session_params", params)
        self._head = self._find_head(model, drafter)
        kind = ffi.new("aerie_spec_type *")
        name = os.fspath(drafter) if os.fspath(drafter) in ("ngram", "none") else "auto"
        lib.aerie_spec_type_parse(name.encode(), kind)
        given.spec.type = kind[0]
        given.spec.optional = drafter == "auto"
        given.spec.head = self._head._pointer() if self._head else ffi.NULL
        session = ffi.new("aerie_session **")
        _check(lib.aerie_session_create(session, model._pointer(), given, error), error)
        self._it = session[0]
        self.model = model
        model._sessions += 1
        self.stats: Stats | None = None
        """Of the answer that ended last."""
        self._lock = threading.Lock()

    @staticmethod
    def _find_head(model: Model, drafter: str | os.PathLike[str]) -> _Head | None:
        path = os.fspath(drafter)
        if path in ("ngram", "none"):
            return None
        if path != "auto":
            return _Head(model._pointer(), _c_text(os.fsencode(path), "a path"))
        found, error = ffi.new("char **"), ffi.new("aerie_error *")
        _check(lib.aerie_drafter_head_find(found, os.fsencode(model.path), lib.AERIE_SPEC_AUTO, error), error)
        if found[0] == ffi.NULL:
            return None
        try:
            return _Head(model._pointer(), ffi.string(found[0]))
        except Error:  # nobody asked for it
            return None
        finally:
            lib.aerie_free(found[0])

    def close(self) -> None:
        if self._it is not None:
            super().close()
            self.model._sessions -= 1
            if self._head:
                self._head.close()

    @property
    def drafter(self) -> str:
        """The drafter in use."""
        return ffi.string(lib.aerie_session_spec_name(self._pointer())).decode()

    @property
    def n_ctx(self) -> int:
        return lib.aerie_session_n_ctx(self._pointer())

    def stream(self, prompt: Prompt, n_predict: int = 0, stop: Sequence[str] = (), n_logprobs: int = 0,
               ignore_eos: bool = False,
               **sampling: Any) -> Iterator[Token]:
        """The answer's tokens as they come. prompt may also be a PicturedPrompt, or a list of Chunks.

        Leaving the loop cancels the rest. sampling: fields of aerie_sampling, such as
        temperature, top_p, seed. n_predict 0: until the answer ends or the context is full."""
        request, n = _init("request"), ffi.new("size_t *")
        if isinstance(prompt, PicturedPrompt):
            ids: list[int] = []
            chunks = (lib.aerie_prompt_chunks(prompt._pointer(), n), prompt)
        else:
            items = prompt if isinstance(prompt, str) else list(prompt)
            given = [c for c in items if isinstance(c, Chunk)]
            if given and len(given) < len(items):
                raise TypeError("a prompt of chunks has nothing but chunks")
            ids = [] if given else self.model.tokens_of(items)  # type: ignore[arg-type]
            chunks = _chunks(given)
            n[0] = len(given)
        tokens = ffi.new("int32_t[]", ids)
        texts = [ffi.new("char[]", _c_text(text.encode(), "a stop text")) for text in stop]
        stops = ffi.new("const char *[]", texts)
        _set(request.sampling, "sampling", sampling)
        request.tokens, request.n_tokens = tokens, len(ids)
        if n[0]:
            request.chunks, request.n_chunks = chunks[0], n[0]
        for name, value in (("n_predict", n_predict), ("ignore_eos", ignore_eos), ("n_logprobs", n_logprobs)):
            _put(request, name, value)
        if texts:
            request.stop, request.n_stop = stops, len(texts)
        return self._run(request, (tokens, texts, stops, chunks))

    def _run(self, request: Any, kept: Any) -> Iterator[Token]:
        task, error = ffi.new("aerie_task **"), ffi.new("aerie_error *")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self._lock:
            session = self._pointer()
            _check(lib.aerie_session_submit(session, request, task, error), error)
            try:
                while True:
                    _check(lib.aerie_session_step(session, error), error)
                    while (event := lib.aerie_session_poll(session)) != ffi.NULL:
                        ended = event.token < 0
                        if ended and event.stats != ffi.NULL:
                            self.stats = _stats(event.stats)
                        # of a character that the limit cut in two nothing is given
                        whole = ended and not (self.stats and self.stats.stop in ("LENGTH", "CONTEXT", "DEAD_END"))
                        text = decoder.decode(bytes(ffi.buffer(event.text, event.n_text)) if event.n_text else b"", whole)
                        if ended and event.refused != ffi.NULL:
                            _check(event.refused.status, event.refused)
                        if text or not ended:
                            yield Token(event.token, text, event.draft_depth, event.logprob)
                        if ended:
                            return
            finally:
                lib.aerie_task_free(task[0])
                del kept

    def generate(self, prompt: Prompt, **options: Any) -> Answer:
        """The whole answer; options as of stream()."""
        tokens = list(self.stream(prompt, **options))
        assert self.stats is not None
        return Answer("".join(t.text for t in tokens), [t.id for t in tokens if t.id >= 0], self.stats)
