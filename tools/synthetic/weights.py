"""Random weights of a given standard deviation, made directly as the blocks of every type.

Quantized blocks get random codes, and scales that give the wanted deviation with a mean of zero:
nothing is quantized, so a gigabyte takes a second or two. The bytes of the blocks are specified in
docs/quantization.md. All bytes depend on the seed and the tensor's name alone.
"""

import zlib
from collections.abc import Iterator

import numpy as np

from synthetic.gguf import Tensor

CHUNK_ELEMENTS = 1 << 22
# A scale is the wanted one times a factor from this range, and of either sign, as in real files.
SPREAD = (0.75, 1.25)
# The root mean square of that factor: sqrt((b^3 - a^3) / (3 (b - a))).
SPREAD_RMS = ((SPREAD[1] ** 3 - SPREAD[0] ** 3) / (3 * (SPREAD[1] - SPREAD[0]))) ** 0.5
# Sub-block scales of the K types are drawn from [low, high).
K_SCALES = (32, 64)
Q2_K_SCALES = (8, 16)
SIGNED_SCALES = (16, 32)
# What the four-bit codes that are no straight line stand for.
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])


def uniform_rms(low: int, high: int, center: float) -> float:
    """Of an integer from low to high - 1, minus center."""
    return rms(np.arange(low, high) - center)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values * values)))


class Maker:
    def __init__(self, random: np.random.Generator, deviation: float):
        self.random = random
        self.deviation = deviation

    def bytes(self, blocks: int, width: int) -> np.ndarray:
        return np.frombuffer(self.random.bytes(blocks * width), np.uint8).reshape(blocks, width)

    def factors(self, blocks: int, code_rms: float) -> np.ndarray:
        """Signed scales [blocks] that bring codes of that root mean square to the deviation."""
        size = self.random.uniform(*SPREAD, blocks).astype(np.float32)
        sign = self.random.integers(0, 2, blocks, np.int8).astype(np.float32) * 2 - 1
        return size * sign * np.float32(self.deviation / (code_rms * SPREAD_RMS))

    def floats(self, count: int) -> np.ndarray:
        return self.random.standard_normal(count, np.float32) * np.float32(self.deviation)

    def f32(self, count: int) -> bytes:
        return self.floats(count).tobytes()

    def f16(self, count: int) -> bytes:
        return self.floats(count).astype(np.float16).tobytes()

    def bf16(self, count: int) -> bytes:
        return (self.floats(count).view(np.uint32) >> 16).astype(np.uint16).tobytes()

    def q4_0(self, count: int) -> bytes:
        return self.centered(count, 16, 16, 8)

    def q5_0(self, count: int) -> bytes:
        return self.centered(count, 20, 32, 16)

    def q4_1(self, count: int) -> bytes:
        return self.with_minimum(count, 16, 16)

    def q5_1(self, count: int) -> bytes:
        return self.with_minimum(count, 20, 32)

    def centered(self, count: int, code_bytes: int, codes: int, center: int) -> bytes:
        blocks = count // 32
        scale = self.factors(blocks, uniform_rms(0, codes, center))
        return joined(halves(scale), self.bytes(blocks, code_bytes))

    def with_minimum(self, count: int, code_bytes: int, codes: int) -> bytes:
        blocks, middle = count // 32, (codes - 1) / 2
        scale = self.factors(blocks, uniform_rms(0, codes, middle))
        return joined(halves(scale), halves(-scale * np.float32(middle)), self.bytes(blocks, code_bytes))

    def q8_0(self, count: int) -> bytes:
        blocks = count // 32
        # -128 is no code that a quantizer makes.
        codes = np.maximum(self.bytes(blocks, 32).view(np.int8), -127).view(np.uint8)
        return joined(halves(self.factors(blocks, uniform_rms(-127, 128, 0))), codes)

    def q4_k(self, count: int) -> bytes:
        return self.super_blocks(count, 128, 16)

    def q5_k(self, count: int) -> bytes:
        return self.super_blocks(count, 160, 32)

    def super_blocks(self, count: int, code_bytes: int, codes: int) -> bytes:
        """Every sub-block's minimum equals its scale, and dmin is the middle code: mean zero."""
        blocks, middle = count // 256, (codes - 1) / 2
        scale = self.factors(blocks, uniform_rms(*K_SCALES, 0) * uniform_rms(0, codes, middle))
        s = self.random.integers(*K_SCALES, (blocks, 8), np.uint8)
        low, high = s[:, :4], s[:, 4:]
        first = low | (high >> 4) << 6
        packed = np.concatenate([first, first, (high & 15) | (high & 15) << 4], axis=1)
        return joined(halves(scale), halves(scale * np.float32(middle)), packed,
                      self.bytes(blocks, code_bytes))

    def q2_k(self, count: int) -> bytes:
        """As in super_blocks, by 16 elements."""
        blocks, middle = count // 256, 1.5
        scale = self.factors(blocks, uniform_rms(*Q2_K_SCALES, 0) * uniform_rms(0, 4, middle))
        s = self.random.integers(*Q2_K_SCALES, (blocks, 16), np.uint8)
        return joined(s | s << 4, self.bytes(blocks, 64), halves(scale),
                      halves(scale * np.float32(middle)))

    def signed_scales(self, blocks: int, parts: int) -> np.ndarray:
        sign = self.random.integers(0, 2, (blocks, parts), np.int8) * 2 - 1
        return (self.random.integers(*SIGNED_SCALES, (blocks, parts), np.int8) * sign).astype(np.int8)

    def q3_k(self, count: int) -> bytes:
        blocks = count // 256
        scale = self.factors(blocks, uniform_rms(*SIGNED_SCALES, 0) * uniform_rms(0, 8, 4))
        s = (self.signed_scales(blocks, 16) + 32).view(np.uint8)
        low = (s[:, :8] & 15) | (s[:, 8:] & 15) << 4
        # Byte i has the upper two bits of the scales i, i + 4, i + 8 and i + 12.
        high = sum((s[:, 4 * k:4 * k + 4] >> 4) << 2 * k for k in range(4))
        return joined(self.bytes(blocks, 96), low, high, halves(scale))

    def q6_k(self, count: int) -> bytes:
        blocks = count // 256
        scale = self.factors(blocks, uniform_rms(*SIGNED_SCALES, 0) * uniform_rms(0, 64, 32))
        scales = self.signed_scales(blocks, 16).view(np.uint8)
        return joined(self.bytes(blocks, 192), scales, halves(scale))

    def iq4_nl(self, count: int) -> bytes:
        blocks = count // 32
        return joined(halves(self.factors(blocks, rms(IQ4_VALUES))), self.bytes(blocks, 16))

    def iq4_xs(self, count: int) -> bytes:
        blocks = count // 256
        scale = self.factors(blocks, uniform_rms(*SIGNED_SCALES, 0) * rms(IQ4_VALUES))
        s = (self.signed_scales(blocks, 8) + 32).view(np.uint8)
        high = ((s >> 4).astype("<u2") << 2 * np.arange(8, dtype=np.uint16)).sum(1, dtype=np.uint16)
        low = (s[:, ::2] & 15) | (s[:, 1::2] & 15) << 4
        return joined(halves(scale), high.astype("<u2").view(np.uint8).reshape(-1, 2), low,
                      self.bytes(blocks, 128))

    def mxfp4(self, count: int) -> bytes:
        """Scales are the two powers of two around the wanted one, so often that they have its square."""
        blocks, wanted = count // 32, self.deviation / rms(MXFP4_VALUES)
        power = int(np.floor(np.log2(wanted)))
        is_upper = self.random.random(blocks) < ((wanted / 2.0 ** power) ** 2 - 1) / 3
        exponents = (128 + power + is_upper).astype(np.uint8)
        return joined(exponents.reshape(-1, 1), self.bytes(blocks, 16))


def halves(values: np.ndarray) -> np.ndarray:
    """[n] as the two bytes of an f16 each: [n, 2]."""
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def joined(*columns: np.ndarray) -> bytes:
    return np.concatenate(columns, axis=1).tobytes()


def generator(seed: int, name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))


def matrix(tensor: Tensor, deviation: float, seed: int) -> Iterator[bytes]:
    """The tensor's bytes in chunks."""
    maker = Maker(generator(seed, tensor.name), deviation)
    make = getattr(maker, tensor.dtype.name.lower())
    total, step = tensor.rows * tensor.cols, CHUNK_ELEMENTS
    for begin in range(0, total, step):
        yield make(min(step, total - begin))


def vector(tensor: Tensor, mean: float, deviation: float, seed: int) -> Iterator[bytes]:
    """A norm or bias in float32."""
    values = generator(seed, tensor.name).standard_normal(tensor.cols, np.float32)
    yield (values * np.float32(deviation) + np.float32(mean)).astype("<f4").tobytes()
