#!/usr/bin/python3
"""Writes networks trained in PyTorch into safetensors files in the folder beside this one, with what they compute.

    /usr/bin/python3 tests/figures/make_safetensors_figures.py          needs torch (Debian, Ubuntu: python3-torch)
    /usr/bin/python3 tests/figures/make_safetensors_figures.py FILE     reads FILE into the first network, as a check of
                                                                        what evenkeel writes

A network `name` gives name.safetensors, its state_dict() in float; name_f16 and name_bf16, the same rounded; and
name_data.safetensors with an input x and the outputs in eval mode: y, and y_f16 and y_bf16 of the rounded networks, computed in
double. One more network is one more function in NETWORKS that returns it, trained, and an input.

Debian has no Python package of safetensors. `save` and `load` below are the format by hand: 8 bytes with the length of the
header, the header in JSON, the tensors' bytes; laid out as the format's own writer does it (by type, then by name, the header
padded with spaces to a multiple of eight), so that evenkeel has to write the same bytes.
"""

import json
import pathlib
import struct
import sys

import torch
from torch import nn

torch.set_num_threads(1)
FOLDER = pathlib.Path(__file__).with_name("safetensors")
TYPES = {  # from the last in a file to the first
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def save(path, tensors):
    order = list(TYPES)
    names = sorted(tensors, key=lambda name: (-order.index(NAMES[tensors[name].dtype]), name))
    header, data = {}, b""
    for name in names:
        tensor = tensors[name].detach().contiguous()
        words = tensor.view(torch.int16) if tensor.element_size() == 2 else tensor  # NumPy has no bfloat16
        raw = words.numpy().tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype = TYPES[entry["dtype"]]
        flat = torch.frombuffer(bytearray(raw[begin:end]), dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def draw(*shape):
    """Normal, rounded to multiples of 1/256."""
    return torch.round(torch.randn(*shape) * 256) / 256


def train(network, x, labels, steps):
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    network.train()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), labels).backward()
        optimizer.step()
    return network


def mlp():
    network = nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(8, 5, bias=False),
        nn.LayerNorm(5),
        nn.GELU(),
        nn.Linear(5, 3),
    )
    x = draw(40, 6)
    train(network, x, x[:, :3].argmax(1), 200)
    return network, draw(7, 6)


class CausalBlock(nn.TransformerEncoderLayer):
    """With the mask that a model of text needs, on rows: `positions` tokens, one behind another, are a sequence."""

    def __init__(self, *sizes, positions):
        super().__init__(*sizes, dropout=0.25, batch_first=True, norm_first=True)
        self.positions = positions

    def forward(self, rows):
        mask = torch.full((self.positions, self.positions), float("-inf"), dtype=rows.dtype).triu(1)
        sequences = rows.view(-1, self.positions, rows.shape[1])
        return super().forward(sequences, src_mask=mask).reshape(rows.shape)


def transformer():
    positions = 4
    network = nn.Sequential(
        nn.Linear(5, 8),
        CausalBlock(8, 2, 12, positions=positions),
        nn.LayerNorm(8),
        nn.Linear(8, 5),
    )
    x = draw(10 * positions, 5)
    previous = torch.cat([x[:1], x[:-1]])
    train(network, x, previous.argmax(1), 100)
    return network, draw(3 * positions, 5)


NETWORKS = [mlp, transformer]


def rounded(state, dtype):
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}


def outputs(network, state, x):
    """Of the network with these weights, computed in double."""
    network = network.double()
    network.load_state_dict(state)
    network.eval()
    with torch.no_grad():
        return network(x.double())


def write(make):
    torch.manual_seed(sum(map(ord, make.__name__)))
    network, x = make()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    data = {"x": x, "y": outputs(network, state, x)}
    save(FOLDER / f"{make.__name__}.safetensors", state)
    for suffix, dtype in [("f16", torch.float16), ("bf16", torch.bfloat16)]:
        lower = rounded(state, dtype)
        save(FOLDER / f"{make.__name__}_{suffix}.safetensors", lower)
        data[f"y_{suffix}"] = outputs(network, lower, x)
    save(FOLDER / f"{make.__name__}_data.safetensors", data)


def check(path):
    """Prints what a file holds and, in the first network, how far its outputs are from those in the figures."""
    state = load(path)
    for name, tensor in state.items():
        print(name, NAMES[tensor.dtype], tuple(tensor.shape))
    data = load(FOLDER / f"{NETWORKS[0].__name__}_data.safetensors")
    network, _ = NETWORKS[0]()
    print("largest difference of outputs:", (outputs(network, state, data["x"]) - data["y"]).abs().max().item())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(pathlib.Path(sys.argv[1]))
    else:
        for make in NETWORKS:
            write(make)
