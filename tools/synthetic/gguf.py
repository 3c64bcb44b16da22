"""Writes GGUF files, version 3 (docs/gguf.md), tensor after tensor, without holding them in memory."""

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ALIGNMENT = 32
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9


@dataclass(frozen=True)
class DType:
    name: str
    gguf_id: int
    block: int        # elements
    block_bytes: int

    def row_bytes(self, cols: int) -> int:
        if cols % self.block:
            raise ValueError(f"{self.name} needs rows of whole blocks of {self.block}, not {cols} elements")
        return cols // self.block * self.block_bytes


DTYPES = {dtype.name: dtype for dtype in (
    DType("F32", 0, 1, 4), DType("F16", 1, 1, 2), DType("BF16", 30, 1, 2),
    DType("Q4_0", 2, 32, 18), DType("Q4_1", 3, 32, 20), DType("Q5_0", 6, 32, 22),
    DType("Q5_1", 7, 32, 24), DType("Q8_0", 8, 32, 34),
    DType("Q2_K", 10, 256, 84), DType("Q3_K", 11, 256, 110), DType("Q4_K", 12, 256, 144),
    DType("Q5_K", 13, 256, 176), DType("Q6_K", 14, 256, 210), DType("IQ4_NL", 20, 32, 18),
    DType("IQ4_XS", 23, 256, 136), DType("MXFP4", 39, 32, 17))}


@dataclass(frozen=True)
class Scalar:
    """An integer of a metadata type other than u32: the type's number, its letter in struct."""
    type: int
    letter: str
    value: int


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: DType
    shape: tuple[int, ...]   # outputs first, as everywhere in Shoal; the file has them reversed

    @property
    def cols(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 2 else 1

    @property
    def bytes(self) -> int:
        return self.rows * self.dtype.row_bytes(self.cols)


def text(value: str) -> bytes:
    encoded = value.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def value_bytes(value: object) -> bytes:
    """A metadata value with its type in front: bool, int (u32), float, str, or a list of one kind."""
    if isinstance(value, Scalar):
        return struct.pack("<I" + value.letter, value.type, value.value)
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value, list) and value:
        return struct.pack("<I", ARRAY) + array_bytes(value)
    raise TypeError(f"no GGUF value for {value!r}")


def array_bytes(values: list) -> bytes:
    head = struct.Struct("<IQ")
    if isinstance(values[0], str):
        return head.pack(STRING, len(values)) + b"".join(map(text, values))
    if isinstance(values[0], float):
        return head.pack(F32, len(values)) + struct.pack(f"<{len(values)}f", *values)
    return head.pack(I32, len(values)) + struct.pack(f"<{len(values)}i", *values)


def header(metadata: dict[str, object], tensors: list[Tensor]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [text(key) + value_bytes(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dimensions = tensor.shape[::-1]
        parts.append(text(tensor.name))
        parts.append(struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions,
                                 tensor.dtype.gguf_id, offset))
        offset += padded(tensor.bytes)
    joined = b"".join(parts)
    return joined + bytes(padded(len(joined)) - len(joined))


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_tensor(file: BinaryIO, tensor: Tensor, chunks: Iterable[bytes],
                 on_bytes: Callable[[int], None]) -> None:
    written = 0
    for chunk in chunks:
        file.write(chunk)
        written += len(chunk)
        on_bytes(len(chunk))
    if written != tensor.bytes:
        raise ValueError(f"{tensor.name}: {written} bytes were made, {tensor.bytes} are due")
    file.write(bytes(padded(written) - written))


def write(path: Path, metadata: dict[str, object], tensors: list[Tensor],
          data_of: Callable[[Tensor], Iterable[bytes]],
          on_bytes: Callable[[int], None] = lambda count: None) -> None:
    """The whole file, under another name until it is complete."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(header(metadata, tensors))
            for tensor in tensors:
                write_tensor(file, tensor, data_of(tensor), on_bytes)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def shares_of(tensors: list[Tensor], count: int) -> list[list[Tensor]]:
    """As many runs of tensors, each of which has one at least."""
    if not 1 <= count <= len(tensors):
        raise ValueError(f"{len(tensors)} tensors make 1 to {len(tensors)} files, not {count}")
    cuts = [len(tensors) * i // count for i in range(count + 1)]
    return [tensors[begin:end] for begin, end in zip(cuts, cuts[1:])]


def write_split(path: Path, metadata: dict[str, object], shares: list[list[Tensor]],
                data_of: Callable[[Tensor], Iterable[bytes]],
                on_bytes: Callable[[int], None] = lambda count: None) -> list[Path]:
    """A file for each share, named as parts of a split model; all settings are in the first one."""
    if len(shares) == 1:
        write(path, metadata, shares[0], data_of, on_bytes)
        return [path]
    paths = [path.with_name(f"{path.stem}-{i + 1:05}-of-{len(shares):05}.gguf") for i in range(len(shares))]
    total = sum(len(share) for share in shares)
    for i, (part, share) in enumerate(zip(paths, shares)):
        place = {"split.no": Scalar(U16, "H", i), "split.count": Scalar(U16, "H", len(shares)),
                 "split.tensors.count": Scalar(I32, "i", total)}
        write(part, (metadata if i == 0 else {}) | place, share, data_of, on_bytes)
    return paths
