"""Tokenizers for synthetic models: any text encodes and decodes, in Shoal and elsewhere.

Two kinds, as real files have them: `spm`, sentencepiece with byte fall-back (Llama 1 and 2), and
byte-level BPE under the splitting rules of a family. Their words are made of letter pairs; what is
left of the vocabulary's size is filled up with longer ones.
"""

from collections.abc import Iterator
from itertools import islice, product
from string import ascii_lowercase

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}")
SIZE_MIN = 259


def words(space: str) -> Iterator[tuple[str, str]]:
    """Longer and longer words, each as the two shorter ones that it is made of."""
    pairs = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]
    yield from (tuple(pair) for pair in pairs)
    yield from ((space, letter) for letter in ascii_lowercase)
    yield from ((space, pair) for pair in pairs)
    yield from product(pairs, ascii_lowercase)
    yield from product(pairs, pairs)


def check_size(size: int) -> None:
    if size < SIZE_MIN:
        raise ValueError(f"a vocabulary needs {SIZE_MIN} tokens at least, not {size}")


def check_count(tokens: list[str], size: int) -> None:
    if len(tokens) != size:
        raise ValueError(f"a vocabulary has {len(tokens)} tokens at most here, not {size}")


def spm(size: int) -> dict[str, object]:
    check_size(size)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    space = "\u2581"
    singles = [space] + [chr(code) for code in range(0x21, 0x7F)]
    pieces = dict.fromkeys(singles + ["".join(word) for word in take(words(space), size)])
    tokens += islice(pieces, size - len(tokens))
    types += [NORMAL] * (len(tokens) - len(types))
    check_count(tokens, size)
    # What comes first is joined first.
    scores = [0.0 if kind != NORMAL else float(259 - i) for i, kind in enumerate(types)]
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": TEMPLATE}


def byte_letters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's table)."""
    plain = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def bpe(size: int, pre: str) -> dict[str, object]:
    check_size(size)
    letters = byte_letters()
    merges = take(words(letters[0x20]), size - 256 - len(SPECIALS))
    tokens = letters + ["".join(pair) for pair in merges] + list(SPECIALS)
    check_count(tokens, size)
    types = [NORMAL] * (size - len(SPECIALS)) + [CONTROL] * len(SPECIALS)
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
                "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    if merges:
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in merges]
    return metadata | {"tokenizer.ggml.bos_token_id": size - 3, "tokenizer.ggml.eos_token_id": size - 1,
                       "tokenizer.ggml.padding_token_id": size - 3,
                       "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE}


def take(pairs: Iterator[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """The first `count`, each word once."""
    taken: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        if len(taken) >= count:
            break
        taken.setdefault("".join(pair), pair)
    return list(taken.values())


def metadata(kind: str, size: int) -> dict[str, object]:
    """kind: "spm", or the name of BPE splitting rules ("qwen2", "smollm", "llama-bpe")."""
    return spm(size) if kind == "spm" else bpe(size, kind)
