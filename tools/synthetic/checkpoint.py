"""Writes models as folders like those of Hugging Face: settings, tokenizer, weights in safetensors.

The weights are those of the GGUF file of the same shape and seed, under other names; Llama's rows of q
and k, which GGUF files hold in another order, are put back (docs/safetensors.md, docs/gguf.md).
"""

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from synthetic.gguf import Tensor
from synthetic.vocabulary import CONTROL, UNKNOWN

TYPES = ("F32", "F16", "BF16")
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
               "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
               "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
               "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
REST = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"


def name_of(name: str) -> str:
    parts = name.split(".")
    if parts[0] != "blk":
        return f"{NAMES[parts[0]]}.{parts[1]}"
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"


def config(shape) -> dict[str, object]:
    """config.json of a Shape of make_model.py."""
    return {"architectures": [ARCHITECTURES[shape.family]], "model_type": shape.family,
            "num_hidden_layers": shape.layers, "hidden_size": shape.hidden,
            "intermediate_size": shape.ffn, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.dims,
            "max_position_embeddings": shape.context, "vocab_size": shape.vocab,
            "rms_norm_eps": 1e-5, "rope_theta": shape.rope_base, "hidden_act": "silu",
            "tie_word_embeddings": shape.tied}


def split_by(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex: bool) -> dict[str, object]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


# The splitting rules that a GGUF file names, as the first part of a pre-tokenizer.
SPLITTERS = {"qwen2": split_by(CONTRACTIONS + "\\p{N}" + REST),
             "llama-bpe": split_by(CONTRACTIONS + "\\p{N}{1,3}" + REST),
             "smollm": {"type": "Digits", "individual_digits": True}}


def spm_merges(tokens: list[str]) -> list[str]:
    """Every way to make a token of two others; those of an earlier token come first."""
    known = set(tokens)
    return [f"{token[:cut]} {token[cut:]}" for token in tokens if not token.startswith("<")
            for cut in range(1, len(token)) if token[:cut] in known and token[cut:] in known]


def tokenizer(metadata: dict[str, object]) -> dict[str, object]:
    """tokenizer.json, of the keys that a GGUF file has (vocabulary.metadata)."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, kind in enumerate(types) if kind in (CONTROL, UNKNOWN)]
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}}
    if metadata["tokenizer.ggml.model"] == "llama":
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        return {"version": "1.0", "added_tokens": added,
                "normalizer": {"type": "Sequence",
                               "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]},
                "decoder": {"type": "Sequence",
                            "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
                "model": model | {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                                  "merges": spm_merges(tokens)}}
    pre = metadata["tokenizer.ggml.pre"]
    return {"version": "1.0", "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence",
                              "pretokenizers": [SPLITTERS[pre], byte_level(pre == "smollm")]},
            "decoder": byte_level(True),
            "model": model | {"ignore_merges": pre == "llama-bpe",
                              "merges": metadata.get("tokenizer.ggml.merges", [])}}


def tokenizer_config(metadata: dict[str, object]) -> dict[str, object]:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {"bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
            "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
            "add_bos_token": metadata["tokenizer.ggml.add_bos_token"],
            "chat_template": metadata["tokenizer.chat_template"]}


def unpermuted(shape, tensor: Tensor, data: bytes) -> bytes:
    """Rows of q and k with each head's first halves of pairs before its second ones."""
    rows = np.frombuffer(data, np.uint8).reshape(-1, shape.dims // 2, 2, len(data) // tensor.rows)
    return rows.swapaxes(1, 2).tobytes()


def write_weights(path: Path, shape, tensors: list[Tensor], data_of: Callable[[Tensor], Iterable[bytes]],
                  on_bytes: Callable[[int], None]) -> None:
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        header[name_of(tensor.name)] = {"dtype": tensor.dtype.name, "shape": list(tensor.shape),
                                        "data_offsets": [offset, offset + tensor.bytes]}
        offset += tensor.bytes
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            data = b"".join(data_of(tensor))
            if len(data) != tensor.bytes:
                raise ValueError(f"{tensor.name}: {len(data)} bytes were made, {tensor.bytes} are due")
            if shape.family == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
                data = unpermuted(shape, tensor, data)
            file.write(data)
            on_bytes(len(data))


def write(path: Path, shape, metadata: dict[str, object], shares: list[list[Tensor]],
          data_of: Callable[[Tensor], Iterable[bytes]],
          on_bytes: Callable[[int], None] = lambda count: None) -> list[Path]:
    """The folder, under another name until it is complete; its files. A file of weights per share."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    names = (["model.safetensors"] if len(shares) == 1 else
             [f"model-{i + 1:05}-of-{len(shares):05}.safetensors" for i in range(len(shares))])
    texts = {"config.json": config(shape), "tokenizer.json": tokenizer(metadata),
             "tokenizer_config.json": tokenizer_config(metadata)}
    if len(shares) > 1:
        texts["model.safetensors.index.json"] = {
            "metadata": {"total_size": sum(tensor.bytes for share in shares for tensor in share)},
            "weight_map": {name_of(tensor.name): name
                           for name, share in zip(names, shares) for tensor in share}}
    try:
        partial.mkdir()
        for name, share in zip(names, shares):
            write_weights(partial / name, shape, share, data_of, on_bytes)
        for name, value in texts.items():
            (partial / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted(path.iterdir())
