"""The pre-tokenizers of tokenizer.json by their GGUF names, and vocabularies of GGUF files as `tokenizers` has them."""
import re
import types

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
FOLD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cl100k(number, letters=r"\p{L}", newlines=r"[\r\n]*"):
    return (FOLD + rf"|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{number}| ?[^\s{letters}\p{{N}}]+{newlines}|" + TAIL)


def o200k(number, fold):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{fold}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{fold}|{number}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)


DIGITS = "digits"  # tokenizers' own Digits(individual_digits=True)
# Name in GGUF: the regular expressions in their order. Those of llama.cpp's table where a tokenizer.json has other means to
# the same end.
FAMILIES = {
    "gpt-2": [GPT2],
    "smollm": [DIGITS, GPT2],
    "llama-bpe": [cl100k(r"\p{N}{1,3}")],
    "qwen2": [cl100k(r"\p{N}")],
    "qwen35": [cl100k(r"\p{N}", letters=r"\p{L}\p{M}")],
    "seed-coder": [cl100k(r"\p{N}", newlines="")],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", DIGITS],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                    r" ?[\p{P}\p{S}]+[\r\n]*|" + TAIL],
    "gpt-4o": [o200k(r"\p{N}{1,3}", FOLD + "?")],
    "tekken": [o200k(r"\p{N}", "")],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "jais-2": [FOLD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" +
               "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}"],
    "laguna": [r"[^\n]+|[\n]+", cl100k(r"\p{N}")],
    "ufakzeka": [cl100k(r"\p{N}").replace(FOLD + "|", "")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", o200k(r"\p{N}{1,3}", FOLD + "?")],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "spark2_5": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                 r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                 r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
              "[一-\u9fff㐀-䶿\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0effក-\u17ffက-\u109f"
              "\uaa60-\uaa7f\ua9e0-\ua9ff가-\ud7afᄀ-ᇿ]+",
              r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
              r" ?[\p{P}\p{S}]+[\r\n]*|" + TAIL],
    "bloom": [r" ?[^(\s|[.,!?…。，、।۔،])]+"],
}
# These run on PCRE2, whose Unicode is another than that of tokenizers: compared on characters that Python knows.
BY_PATTERN = {"deepseek-coder", "deepseek-v3", "falcon", "bloom", "spark2_5", "afmoe"}


def pre_tokenizer(name):
    steps = []
    for pattern in FAMILIES[name]:
        if pattern == DIGITS:
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        else:
            steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    return pre_tokenizers.Sequence(steps)


def field(reader, key):
    f = reader.get_field("tokenizer.ggml." + key)
    if f is None:
        return None
    value = f.contents()
    return value


def add_specials(tokenizer, tokens, types, strip=False):
    """Control, unknown and user-defined tokens, looked for in the text as they are. strip: as Phi-3's, which swallow spaces."""
    def added(token, special):
        return AddedToken(token, normalized=False, special=special,
                          rstrip=strip and token not in ("<unk>", "<s>", "<|endoftext|>"))
    tokenizer.add_special_tokens([added(t, True) for t, k in zip(tokens, types) if k in (2, 3)])
    tokenizer.add_tokens([added(t, False) for t, k in zip(tokens, types) if k == 4])


def byte_level(reader):
    """As transformers makes it of a GGUF file: vocabulary, merges, byte-level letters."""
    tokens, types = field(reader, "tokens"), field(reader, "token_type")
    merges = [tuple(m.split(" ")) for m in field(reader, "merges")]
    name = field(reader, "pre")
    name = {"starcoder": "smollm", "refact": "smollm", "command-r": "smollm"}.get(name, name)
    vocabulary = {t: i for i, t in enumerate(tokens)}
    model = models.BPE(vocabulary, merges, ignore_merges=name in ("llama-bpe", "tekken"))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizer(name), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    add_specials(tokenizer, tokens, types)
    return tokenizer, name


def sentencepiece(reader):
    """SPM as transformers makes it: every way to split a token into two tokens is a merge, ranked by the token's score."""
    tokens, types, scores = field(reader, "tokens"), field(reader, "token_type"), field(reader, "scores")
    vocabulary = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token, kind, score in zip(tokens, types, scores):
        if kind not in (1, 5):
            continue
        for i in range(1, len(token)):
            left, right = token[:i], token[i:]
            if left in vocabulary and right in vocabulary:
                merges.append((-score, vocabulary[left], vocabulary[right], left, right))
    merges.sort(key=lambda m: m[:3])
    model = models.BPE(vocabulary, [m[3:] for m in merges], unk_token=tokens[0], fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    name = reader.get_field("general.name")
    phi3 = name is not None and "phi3" in name.contents().lower().replace("-", "")
    add_specials(tokenizer, tokens, types, strip=phi3)
    return tokenizer, "spm"


def wordpiece(reader):
    """BERT's: GGUF marks the tokens that begin a word, BERT's own files those that do not."""
    tokens, types = field(reader, "tokens"), field(reader, "token_type")
    cased = any(c in t for t, k in zip(tokens, types) if k == 1 for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    vocabulary = {t[1:] if t.startswith("\u2581") else "##" + t if k == 1 else t: i
                  for i, (t, k) in enumerate(zip(tokens, types))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    add_specials(tokenizer, tokens, types)
    return tokenizer, "wordpiece, " + ("cased" if cased else "uncased")


class Unigram:
    """Text without special tokens is normalized by sentencepiece (`tokenizers` does so by graphemes, and differs where marks
    follow one another), and each word becomes tokens by the model of `tokenizers`, whose sums are double."""

    def __init__(self, reader):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
        tokens, kinds, scores = field(reader, "tokens"), field(reader, "token_type"), field(reader, "scores")
        proto = sentencepiece_model_pb2.ModelProto()
        for token, kind, score in zip(tokens, kinds, scores):
            proto.pieces.add(piece=token, score=score, type=kind)
        proto.trainer_spec.model_type = 1
        proto.trainer_spec.unk_id = kinds.index(2)
        proto.trainer_spec.bos_id = proto.trainer_spec.eos_id = proto.trainer_spec.pad_id = -1
        proto.normalizer_spec.precompiled_charsmap = bytes(b & 255 for b in field(reader, "precompiled_charsmap") or [])
        proto.normalizer_spec.add_dummy_prefix = bool(field(reader, "add_space_prefix"))
        proto.normalizer_spec.remove_extra_whitespaces = bool(field(reader, "remove_extra_whitespaces"))
        self.normalizer = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        self.words = Tokenizer(models.Unigram(list(zip(tokens, scores)), unk_id=kinds.index(2), byte_fallback=False))
        self.words.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
        self.ids = {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k in (2, 3, 4)}
        self.special = re.compile("(" + "|".join(re.escape(t) for t in sorted(self.ids, key=len, reverse=True)) + ")")

    def encode_batch(self, batch, add_special_tokens):
        assert not add_special_tokens
        out = []
        for text in batch:
            ids = []
            for part in self.special.split(text):
                ids += [self.ids[part]] if part in self.ids else self.words.encode(self.normalizer.normalize(part)).ids
            out.append(types.SimpleNamespace(ids=ids))
        return out


def unigram(reader):
    return Unigram(reader), "unigram"


def load(path):
    from gguf import GGUFReader
    reader = GGUFReader(path)
    model = field(reader, "model")
    return {"gpt2": byte_level, "llama": sentencepiece, "bert": wordpiece, "t5": unigram}[model](reader)
