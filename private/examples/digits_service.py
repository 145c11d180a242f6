"""From pictures to a private service in one file: train, export, serve, query, and a page of every byte.

pip install scikit-learn thinwire thinwire-private
python digits_service.py bytes.html
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sklearn.datasets import load_digits

import thinwire_private as private
from thinwire_private.costs import by_layer, total
from thinwire_private.net.oracle import predict
from thinwire_private.net.twq import QuantizedModel, read_twq, write_twq
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build
from thinwire_private.train.fit import Pictures, TrainingSchedule, fit
from thinwire_private.train.qnet import QNet
from thinwire_private.train.run import export

# 1. The server's data: 1,500 pictures of digits, 8x8, integers from 0 to 16. The client has the other 297.
data, labels = load_digits(return_X_y=True)
x = torch.from_numpy(data.reshape(-1, 1, 8, 8).astype(np.uint8))
y = torch.from_numpy(labels).long()
pictures = Pictures("digits", x[:1500], y[:1500], x[1500:], y[1500:])

# 2. Train in floating point, then on the integer grid: 4-bit weights, 6-bit activations. Export.
torch.set_num_threads(1)  # so small a network only loses by more
torch.manual_seed(0)
net = QNet(build("digits", read_bits("W4A6")))
fit(net, pictures, TrainingSchedule(8, 0.2, 64), seed=0)
net.quantize(pictures.x[:256])
fit(net, pictures, TrainingSchedule(3, 2e-3, 64, 0.0), seed=0)

with TemporaryDirectory() as folder:
    write_twq(Path(folder) / "digits.twq", QuantizedModel(export(net)))
    model = read_twq(Path(folder) / "digits.twq").graph

# 3. Serve it and ask it. The client sees no weight, the server no picture; a pool prepares queries ahead.
asked, right = x[1500:1510].numpy().astype(np.int64), y[1500:1510].numpy()
with private.Server(model) as server, private.Client(server.address, pool=2) as client:
    logits = np.concatenate([client.predict(picture) for picture in asked])
    entries = client.entries

# 4. Every answer is the plaintext one, every byte was predicted.
assert np.array_equal(logits.argmax(axis=1), predict(model, asked))
whole = total(entries)
assert whole.measured_bytes == whole.predicted_bytes
num_right = (logits.argmax(axis=1) == right).sum()
print(f"{num_right} of 10 digits are right, {whole.measured_bytes:,} bytes as predicted")

# 5. The page of bytes, layer by layer.
rows = "".join(
    f"<tr><td>{escape(e.layer)}<td>{e.phase}<td>{e.predicted_bytes:,}<td>{e.measured_bytes:,}"
    for e in by_layer(entries)
    if e.measured_bytes
)
out = Path(sys.argv[1] if len(sys.argv) > 1 else "bytes.html")
out.write_text(f"<title>Bytes</title><table><tr><th>layer<th>phase<th>predicted<th>measured{rows}</table>")
print(f"page: {out}")
