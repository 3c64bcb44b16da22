#!/usr/bin/python3
"""Writes a model of any supported shape with random weights, in the types that --list names.

    tools/make_model.py --preset llama-1.1b --type Q4_0 -o /tmp/llama-1.1b-q4_0.gguf
    tools/make_model.py --preset smollm2-135m --type Q4_K_M -o /tmp/smollm2.gguf --seed 7
    tools/make_model.py --family qwen3 --layers 4 --hidden 256 --heads 4 --kv-heads 2 --head-dim 64 \\
        --ffn 512 --vocab 512 --type F16 -o /tmp/tiny-qwen3.gguf
    tools/make_model.py --preset tiny --type F16 --format safetensors --shards 3 -o /tmp/tiny
    tools/make_model.py --list

The model is a GGUF file, or with --shards N so many parts of one (NAME-00001-of-0000N.gguf), or with
--format safetensors a folder as Hugging Face checkpoints are, which holds the same model.
Weights are scaled so that activations stay of order one through any number of layers; what the model
says is noise, at the speed of a real one. The same options and seed give the same bytes.

Types of the matrices: --type, with the exceptions that llama.cpp's quantizer makes, so that files and
speeds compare (llama_tensor_get_type in its src/llama-quant.cpp): the output head, or the embedding
where there is none, is Q6_K under every quantized type but Q8_0 and Q4_K_M's attn_v and ffn_down are
Q6_K in the first and last eighth of the layers and in every third between; a type with blocks of 256
whose rows are no whole number of them becomes Q5_0 (Q4_K), Q5_1 (Q5_K), Q8_0 (Q6_K) or IQ4_NL (Q2_K,
Q3_K, IQ4_XS). --pure turns the head's off. That quantizer gives some matrices of a Q2_K or Q3_K file
more bits; here all have the type's.
Needs numpy of the system's own Python (./dev setup).
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    from synthetic import checkpoint, gguf, vocabulary, weights  # noqa: E402
except ModuleNotFoundError as missing:
    # Hence the first line: another python3 on the path does not see the system's packages.
    sys.exit(f"make_model.py: {missing}: install Debian's python3-numpy, or ./dev setup")
from synthetic.gguf import DTYPES, Tensor  # noqa: E402


@dataclass(frozen=True)
class Shape:
    family: str = "llama"     # llama, qwen2, qwen3
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0         # 0: hidden / heads
    ffn: int = 128
    vocab: int = 320
    context: int = 2048
    rope_base: float = 10000.0
    tied: bool = False
    tokenizer: str = "spm"    # or the name of BPE splitting rules

    @property
    def dims(self) -> int:
        return self.head_dim or self.hidden // self.heads


PRESETS = {
    "tiny": Shape(),
    "tiny-k": Shape(hidden=256, ffn=512),
    "tiny-qwen2": Shape("qwen2", tied=True, tokenizer="qwen2"),
    "tiny-qwen3": Shape("qwen3", head_dim=32, tied=True, tokenizer="qwen2"),
    "smollm2-135m": Shape("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, True, "smollm"),
    "smollm2-360m": Shape("llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5, True, "smollm"),
    "llama-1.1b": Shape("llama", 22, 2048, 32, 4, 64, 5632, 32000, 8192, 1e4),
    "llama-7b": Shape("llama", 32, 4096, 32, 32, 128, 11008, 32000, 8192, 1e4),
    "llama3-8b": Shape("llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 5e5, False, "llama-bpe"),
    "qwen2-0.5b": Shape("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, True, "qwen2"),
    "qwen2-1.5b": Shape("qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, True, "qwen2"),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, True, "qwen2"),
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6, True, "qwen2"),
}

# --type: the matrices' type, and general.file_type as llama.cpp numbers it.
FILE_TYPES = {"F32": ("F32", 0), "F16": ("F16", 1), "BF16": ("BF16", 32), "Q4_0": ("Q4_0", 2),
              "Q4_1": ("Q4_1", 3), "Q5_0": ("Q5_0", 8), "Q5_1": ("Q5_1", 9), "Q8_0": ("Q8_0", 7),
              "Q2_K": ("Q2_K", 10), "Q3_K": ("Q3_K", 11), "Q4_K": ("Q4_K", 14), "Q5_K": ("Q5_K", 16),
              "Q6_K": ("Q6_K", 18), "Q4_K_M": ("Q4_K", 15), "IQ4_NL": ("IQ4_NL", 25),
              "IQ4_XS": ("IQ4_XS", 30), "MXFP4": ("MXFP4", 38)}
PLAIN = ("F32", "F16", "BF16", "Q8_0")
FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL",
             "IQ4_XS": "IQ4_NL"}


class TypeRule:
    """Which type each matrix gets; see the top of this file."""

    def __init__(self, name: str, layers: int, pure: bool):
        self.base = FILE_TYPES[name][0]
        self.mixes = name == "Q4_K_M"
        self.layers = layers
        self.pure = pure

    def takes_more_bits(self, layer: int) -> bool:
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2

    def layer(self, layer: int, role: str, cols: int) -> gguf.DType:
        more = self.mixes and role in ("attn_v", "ffn_down") and self.takes_more_bits(layer)
        return self.fitting("Q6_K" if more else self.base, cols)

    def head(self, cols: int) -> gguf.DType:
        return self.fitting(self.base if self.pure or self.base in PLAIN else "Q6_K", cols)

    def embedding(self, cols: int) -> gguf.DType:
        return self.fitting(self.base, cols)

    @staticmethod
    def fitting(name: str, cols: int) -> gguf.DType:
        if cols % DTYPES[name].block and name in FALLBACKS:
            name = FALLBACKS[name]
        return DTYPES[name]


@dataclass(frozen=True)
class Part:
    """A tensor and the scale of its values."""
    tensor: Tensor
    deviation: float
    mean: float = 0.0
    is_vector: bool = False


def parts(shape: Shape, rule: TypeRule) -> Iterator[Part]:
    hidden, q, kv = shape.hidden, shape.heads * shape.dims, shape.kv_heads * shape.dims
    # Every layer adds two terms to the residual stream: it grows to order one over all of them.
    out = (2 * shape.layers) ** -0.5

    def vector(name: str, size: int, mean: float = 1.0, deviation: float = 0.1) -> Part:
        return Part(Tensor(name, DTYPES["F32"], (size,)), deviation, mean, True)

    embedding = rule.head(hidden) if shape.tied else rule.embedding(hidden)
    yield Part(Tensor("token_embd.weight", embedding, (shape.vocab, hidden)), hidden ** -0.5 if shape.tied else 1.0)
    for i in range(shape.layers):
        def matrix(role: str, rows: int, cols: int, gain: float = 1.0, i: int = i) -> Part:
            return Part(Tensor(f"blk.{i}.{role}.weight", rule.layer(i, role, cols), (rows, cols)),
                        gain * cols ** -0.5)
        yield vector(f"blk.{i}.attn_norm.weight", hidden)
        yield matrix("attn_q", q, hidden)
        yield matrix("attn_k", kv, hidden)
        yield matrix("attn_v", kv, hidden)
        if shape.family == "qwen2":
            for role, size in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                yield vector(f"blk.{i}.{role}.bias", size, 0.0)
        if shape.family == "qwen3":
            yield vector(f"blk.{i}.attn_q_norm.weight", shape.dims)
            yield vector(f"blk.{i}.attn_k_norm.weight", shape.dims)
        yield matrix("attn_output", hidden, q, out)
        yield vector(f"blk.{i}.ffn_norm.weight", hidden)
        yield matrix("ffn_gate", shape.ffn, hidden)
        yield matrix("ffn_up", shape.ffn, hidden)
        yield matrix("ffn_down", hidden, shape.ffn, 2 * out)
    yield vector("output_norm.weight", hidden)
    if not shape.tied:
        yield Part(Tensor("output.weight", rule.head(hidden), (shape.vocab, hidden)), hidden ** -0.5)


def metadata(shape: Shape, name: str, file_type: int) -> dict[str, object]:
    a = shape.family
    return {"general.architecture": a, "general.name": name, "general.file_type": file_type,
            "general.quantization_version": 2, "general.alignment": gguf.ALIGNMENT,
            f"{a}.block_count": shape.layers, f"{a}.context_length": shape.context,
            f"{a}.embedding_length": shape.hidden, f"{a}.feed_forward_length": shape.ffn,
            f"{a}.attention.head_count": shape.heads, f"{a}.attention.head_count_kv": shape.kv_heads,
            f"{a}.attention.key_length": shape.dims, f"{a}.attention.value_length": shape.dims,
            f"{a}.attention.layer_norm_rms_epsilon": 1e-5, f"{a}.rope.dimension_count": shape.dims,
            f"{a}.rope.freq_base": float(shape.rope_base), f"{a}.vocab_size": shape.vocab,
            **vocabulary.metadata(shape.tokenizer, shape.vocab)}


class Progress:
    def __init__(self, total: int, is_quiet: bool):
        self.total, self.done, self.started = total, 0, time.monotonic()
        self.is_shown = not is_quiet and sys.stderr.isatty()
        self.shown_at = 0.0

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.is_shown and now - self.shown_at > 0.2:
            self.shown_at = now
            print(f"\r{self.done / 1e9:.2f} of {self.total / 1e9:.2f} GB", end="", file=sys.stderr)

    def finish(self) -> float:
        if self.is_shown:
            print("\r\x1b[K", end="", file=sys.stderr)
        return time.monotonic() - self.started


def make(shape: Shape, type_name: str, path: Path, options: argparse.Namespace) -> str:
    """Writes the file and says what it is."""
    plan = list(parts(shape, TypeRule(type_name, shape.layers, options.pure)))
    by_name = {part.tensor.name: part for part in plan}
    tensors = [part.tensor for part in plan]

    def data(tensor: Tensor) -> Iterator[bytes]:
        part = by_name[tensor.name]
        if part.is_vector:
            return weights.vector(tensor, part.mean, part.deviation, options.seed)
        return weights.matrix(tensor, part.deviation, options.seed)

    name = options.name or f"synthetic {options.preset or shape.family} {type_name}"
    progress = Progress(sum(tensor.bytes for tensor in tensors), options.quiet)
    settings = metadata(shape, name, FILE_TYPES[type_name][1])
    shares = gguf.shares_of(tensors, options.shards)
    if options.format == "safetensors":
        files = checkpoint.write(path, shape, settings, shares, data, progress.add)
    else:
        files = gguf.write_split(path, settings, shares, data, progress.add)
    seconds = progress.finish()
    parameters = sum(tensor.rows * tensor.cols for tensor in tensors)
    size = sum(file.stat().st_size for file in files)
    return (f"{path}: {name}, {parameters / 1e6:.1f} M parameters, {size / 1e6:.1f} MB, "
            f"seed {options.seed}, made in {seconds:.1f} s")


def check(shape: Shape) -> str:
    """What is wrong with a shape; empty when nothing is."""
    numbers = (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn, shape.vocab)
    if min(numbers) < 1:
        return "every size must be at least 1"
    if shape.heads % shape.kv_heads:
        return f"--heads {shape.heads} is no multiple of --kv-heads {shape.kv_heads}"
    if not shape.head_dim and shape.hidden % shape.heads:
        return f"--hidden {shape.hidden} is no multiple of --heads {shape.heads}; give --head-dim"
    if shape.dims % 2:
        return f"a head of {shape.dims} dimensions has no pairs to rotate"
    return ""


def list_presets() -> None:
    for name, shape in PRESETS.items():
        print(f"{name:<14} {shape.family:<6} {shape.layers} layers x {shape.hidden}, {shape.heads} heads, "
              f"{shape.kv_heads} KV heads of {shape.dims}, ffn {shape.ffn}, vocab {shape.vocab}"
              f"{', tied' if shape.tied else ''}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="the file or folder to write")
    parser.add_argument("--type", default="Q4_0", choices=FILE_TYPES, help="of the matrices (default Q4_0)")
    parser.add_argument("--preset", choices=PRESETS, help="a shape by name; options below change it")
    parser.add_argument("--list", action="store_true", help="show the presets and stop")
    parser.add_argument("--family", choices=["llama", "qwen2", "qwen3"])
    for name in ("layers", "hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "context"):
        parser.add_argument(f"--{name}", type=int, metavar="N")
    parser.add_argument("--rope-base", type=float, metavar="X")
    parser.add_argument("--tied", action=argparse.BooleanOptionalAction,
                        help="the embedding is the output head, too")
    parser.add_argument("--tokenizer", choices=["spm", "qwen2", "smollm", "llama-bpe"],
                        help="default: the family's")
    parser.add_argument("--format", default="gguf", choices=["gguf", "safetensors"])
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="files of weights (default 1)")
    parser.add_argument("--pure", action="store_true", help="the output head in --type, too")
    parser.add_argument("--seed", type=int, default=1, help="other weights (default 1)")
    parser.add_argument("--name", help="general.name")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    options = parser.parse_args()
    if not options.list and options.output is None:
        parser.error("-o FILE is missing")
    if options.format == "safetensors" and options.type not in checkpoint.TYPES:
        parser.error(f"safetensors files hold {', '.join(checkpoint.TYPES)}, not {options.type}")
    if options.seed < 0:
        parser.error("--seed must not be negative")
    options.shape = shape_of(options)
    if problem := check(options.shape):
        parser.error(problem)
    return options


def shape_of(options: argparse.Namespace) -> Shape:
    base = PRESETS[options.preset] if options.preset else Shape()
    fields = ("family", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context",
              "rope_base", "tied", "tokenizer")
    given = {field: getattr(options, field) for field in fields if getattr(options, field) is not None}
    if "family" in given and "tokenizer" not in given and not options.preset:
        given["tokenizer"] = "spm" if given["family"] == "llama" else "qwen2"
    if {"heads", "hidden"} & given.keys() and "head_dim" not in given:
        given["head_dim"] = 0
    return replace(base, **given)


def main() -> int:
    options = parse_arguments()
    if options.list:
        list_presets()
        return 0
    try:
        summary = make(options.shape, options.type, options.output, options)
    except (OSError, ValueError) as error:
        print(f"make_model.py: {error}", file=sys.stderr)
        return 1
    if not options.quiet:
        print(summary, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
