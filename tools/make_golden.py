#!/usr/bin/env python3
"""Makes tests/data/golden: tiny random checkpoints of each family, and what a reference computes.

    python3 -m venv ~/golden && ~/golden/bin/pip install torch transformers safetensors gguf
    ~/golden/bin/python tools/make_golden.py tests/data/golden

The reference is Hugging Face transformers in float32 with its plain ("eager") attention. Every
weight is a number that bfloat16 and float16 both hold exactly, so the safetensors and the GGUF form
of a model have the same weights whatever type they are stored in. Runs on the CPU in a minute; the
same seed gives the same weights.
"""

import argparse
import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

PROMPT_TOKENS = 40
SMALLEST_WEIGHT = 2.0**-12  # smaller ones become 0: float16 would round them

YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def case(name, config_class, stored, gguf_type, gguf_architecture, old_spelling=False, **settings):
    """One model. gguf_type is None where there is no GGUF form of it."""
    common = {
        "vocab_size": 240, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    }
    return {
        "name": name, "config": config_class(**(common | settings)), "stored": stored,
        "gguf_type": gguf_type, "gguf_architecture": gguf_architecture,
        "old_spelling": old_spelling,
    }


def cases():
    yield case("llama1", LlamaConfig, torch.float32, "F32", "llama", hidden_size=48,
               num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
               intermediate_size=80, rope_parameters=plain_rope(10000.0),
               tie_word_embeddings=False)
    yield case("llama2", LlamaConfig, torch.bfloat16, "F16", "llama", hidden_size=48,
               num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
               intermediate_size=72, rope_parameters=plain_rope(10000.0),
               tie_word_embeddings=False)
    yield case("llama3", LlamaConfig, torch.bfloat16, "BF16", "llama", old_spelling=True,
               hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=88, rope_parameters=LLAMA3, tie_word_embeddings=False)
    yield case("mistral", MistralConfig, torch.bfloat16, None, None, hidden_size=40,
               num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=1,
               intermediate_size=72, sliding_window=8, rope_parameters=plain_rope(10000.0),
               tie_word_embeddings=False)
    yield case("qwen2", Qwen2Config, torch.bfloat16, "F16", "qwen2", hidden_size=48,
               num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
               intermediate_size=72, rope_parameters=plain_rope(1000000.0),
               tie_word_embeddings=True)
    yield case("qwen2_window", Qwen2Config, torch.float16, None, None, hidden_size=32,
               num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=64, use_sliding_window=True, sliding_window=8,
               max_window_layers=1, rope_parameters=plain_rope(1000000.0),
               tie_word_embeddings=True)
    yield case("qwen3", Qwen3Config, torch.bfloat16, "BF16", "qwen3", hidden_size=40,
               num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=16,
               intermediate_size=72, rope_parameters=plain_rope(1000000.0),
               tie_word_embeddings=False)
    yield case("smollm", LlamaConfig, torch.bfloat16, "F16", "llama", hidden_size=72,
               num_hidden_layers=2, num_attention_heads=9, num_key_value_heads=3,
               intermediate_size=96, rope_parameters=plain_rope(100000.0),
               tie_word_embeddings=True)
    yield case("yarn", Qwen2Config, torch.bfloat16, "F16", "qwen2", old_spelling=True,
               hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
               intermediate_size=64, rope_parameters=YARN, tie_word_embeddings=True)


def randomize(model, generator):
    """Weights large enough that every part of a layer shows in the logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                values = 1.0 + 0.3 * noise
            elif name.endswith("bias"):
                values = 0.5 * noise
            elif "embed_tokens" in name:
                values = noise
            else:
                values = 1.4 * noise / parameter.shape[-1] ** 0.5
            values = values.to(torch.bfloat16).to(torch.float32)
            values[values.abs() < SMALLEST_WEIGHT] = 0.0
            parameter.copy_(values)


def save_checkpoint(model, spec, folder):
    """model.safetensors and config.json, in the older spelling of rope where the case says so."""
    stored = AutoModelForCausalLM.from_config(spec["config"])
    stored.load_state_dict(model.state_dict())
    stored.to(spec["stored"]).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if spec["old_spelling"]:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def interleave(weight, heads):
    """The row order of q and k in GGUF files of the llama family: the two halves of a head take
    turns."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def llama3_divisors(config):
    """What rope_freqs.weight holds: by how much each frequency is divided."""
    rope = config.rope_parameters
    head_dim = config.hidden_size // config.num_attention_heads
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    wavelengths = 2 * np.pi / frequencies
    original = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / rope["factor"] + smooth)).astype(np.float32)


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight",
                "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]
    _, _, layer, rest = name.split(".", 3)
    role, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[role]}.{kind}"


def save_gguf(model, spec, path):
    config = spec["config"]
    writer = gguf.GGUFWriter(path, spec["gguf_architecture"])
    writer.add_name("golden " + spec["name"])
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if spec["name"] == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    kind = gguf.GGMLQuantizationType[spec["gguf_type"]]
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if spec["gguf_architecture"] == "llama":
            if name.endswith("q_proj.weight"):
                values = interleave(values, config.num_attention_heads)
            elif name.endswith("k_proj.weight"):
                values = interleave(values, config.num_key_value_heads)
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(spec, seed, root):
    folder = root / spec["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(spec["config"], attn_implementation="eager",
                                             dtype=torch.float32)
    model.eval()
    randomize(model, generator)
    prompt = torch.randint(3, spec["config"].vocab_size, (1, PROMPT_TOKENS), generator=generator)
    with torch.no_grad():
        logits = model(prompt).logits[0].to(torch.float32).numpy()
    save_checkpoint(model, spec, folder / "safetensors")
    if spec["gguf_type"]:
        save_gguf(model, spec, folder / "model.gguf")
    logits.astype("<f4").tofile(folder / "logits.f32")
    (folder / "golden.json").write_text(json.dumps({
        "made_with": f"Hugging Face transformers {transformers.__version__} in float32",
        "prompt": prompt[0].tolist(),
        "positions": PROMPT_TOKENS,
        "vocab": spec["config"].vocab_size,
        "safetensors": "safetensors",
        "gguf": "model.gguf" if spec["gguf_type"] else None,
    }) + "\n")
    print(f"{spec['name']:14} logits from {logits.min():.3f} to {logits.max():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the cases are written")
    parser.add_argument("--only", help="the name of one case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed, spec in enumerate(cases()):
        if arguments.only in (None, spec["name"]):
            make(spec, seed, arguments.folder)


if __name__ == "__main__":
    main()
