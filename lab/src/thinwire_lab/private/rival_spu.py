"""SPU's side of the comparison: the digits CNN under Cheetah, two processes over loopback. Stands alone.

Needs a Python with `spu`, `jax<=0.4.34`, `numpy<2` (a throw-away venv), and imports nothing of thinwire:

    unshare -n sh -c 'ip link set lo up && VENV/bin/python rival_spu.py FIELD IMAGES'

FIELD is 32 or 64 (bits of the ring). Bytes are those of the loopback interface without TCP/IP headers; in a
network namespace of its own (unshare -n) nothing else is counted. Prints one JSON line.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import sys
import time
from pathlib import Path
from typing import Any

PORTS = (39531, 39532)
HEADER_BYTES = 66
INPUT, CONVS, CLASSES = (8, 8, 1), ((16, 1), (32, 2), (32, 1)), 10  # (channels out, stride), 3x3 each


def weights(np: Any) -> list[Any]:
    """Random float weights of the digits CNN, HWIO."""
    generator, made, channels = np.random.default_rng(0), [], INPUT[2]
    for out, _ in CONVS:
        made.append(generator.normal(0, (9 * channels) ** -0.5, (3, 3, channels, out)).astype(np.float32))
        channels = out
    return [*made, generator.normal(0, 0.1, (4 * channels, CLASSES)).astype(np.float32)]


def network(x: Any, *layers: Any) -> Any:
    """conv, ReLU three times, sum pool of 2x2, fully connected: the graph of `zoo.digits` in floats."""
    import jax
    import jax.numpy as jnp

    for weight, (_, stride) in zip(layers[:-1], CONVS, strict=True):
        x = jax.lax.conv_general_dilated(
            x, weight, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jnp.maximum(x, 0)
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // 2, 2, width // 2, 2, channels).sum((2, 4))
    return x.reshape(batch, -1) @ layers[-1]


def party(rank: int, field: int, shares: list[Any], images: int, results: Any) -> None:
    """One process: link, compile, run `images` times; tells output shares and seconds."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import spu
    from spu import libspu
    from spu.utils import frontend

    desc = libspu.link.Desc()
    for place, port in enumerate(PORTS):
        desc.add_party(f"p{place}", f"127.0.0.1:{port}")
    link = libspu.link.create_brpc(desc, rank)
    config = configuration(libspu, field)
    runtime = spu.Runtime(link, config)
    sample = [np.zeros((1, *INPUT), np.float32), *weights(np)]
    names = [f"in{place}" for place in range(len(sample))]
    secret = [libspu.Visibility.VIS_SECRET] * len(sample)
    options = libspu.CompilerOptions()
    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        jax.jit(network),
        [jnp.asarray(each) for each in sample],
        {},
        names,
        secret,
        lambda outs: [f"out{place}" for place in range(len(outs))],
        copts=options,
    )
    for name, share in zip(names, shares, strict=True):
        runtime.set_var(name, share)
    for number in range(images):
        link.barrier()
        start, before = time.perf_counter(), loopback_bytes()
        runtime.run(executable)
        link.barrier()
        passed = loopback_bytes() - before
        results.put((rank, number, time.perf_counter() - start, passed, runtime.get_var("out0")))
    link.barrier()
    link.stop_link()


def configuration(libspu: Any, field: int) -> Any:
    """Cheetah (BFV + Ferret) in a ring of 32 or 64 bits."""
    kind = {32: libspu.FieldType.FM32, 64: libspu.FieldType.FM64}[field]
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=kind)
    config.fxp_fraction_bits = 12 if field == 32 else 18
    config.experimental_enable_colocated_optimization = True
    return config


def loopback_bytes() -> int:
    """Payload bytes that loopback has carried, both directions."""
    line = next(
        row for row in Path("/proc/net/dev").read_text().splitlines() if row.strip().startswith("lo:")
    )
    numbers = [int(number) for number in line.split(":")[1].split()]
    return numbers[0] - HEADER_BYTES * numbers[1]


def collected(results: Any, children: list[Any], number: int) -> list[Any]:
    """So many results; ends the program, and the other party, when one of them has died."""
    rows: list[Any] = []
    while len(rows) < number:
        try:
            rows.append(results.get(timeout=1))
        except queue.Empty:
            dead = [child.exitcode for child in children if child.exitcode]
            if dead:
                for child in children:
                    child.kill()
                sys.exit(f"a party of SPU died with exit code {dead[0]}")
    return rows


def main() -> None:
    """Two processes; compares with the floats."""
    import numpy as np
    import spu
    from spu import libspu

    field, images = int(sys.argv[1]), int(sys.argv[2])
    x = np.random.default_rng(1).uniform(0, 1, (1, *INPUT)).astype(np.float32)
    io = spu.Io(2, configuration(libspu, field))
    owners = [1, 0, 0, 0, 0]  # the picture is the client's, the weights are the server's
    secret = libspu.Visibility.VIS_SECRET
    pairs = [
        io.make_shares(each, secret, owner) for each, owner in zip([x, *weights(np)], owners, strict=True)
    ]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [
        context.Process(target=party, args=(rank, field, [pair[rank] for pair in pairs], images, results))
        for rank in (0, 1)
    ]
    for child in children:
        child.start()
    rows = collected(results, children, 2 * images)
    for child in children:
        child.join()
    last = {rank: share for rank, number, _, _, share in rows if number == images - 1}
    error = np.abs(io.reconstruct([last[0], last[1]]) - np.asarray(network(x, *weights(np)))).max()
    client = sorted(row[1:4] for row in rows if row[0] == 1)
    print(
        json.dumps(
            {
                "system": f"SPU {spu.__version__} Cheetah, {field}-bit ring",
                "bytes_first": client[0][2],
                "bytes": sorted(row[2] for row in client[1:] or client)[(len(client) - 1) // 2],
                "seconds_first": client[0][1],
                "seconds": sorted(row[1] for row in client[1:] or client)[(len(client) - 1) // 2],
                "images": images,
                "largest_error": float(error),
            }
        )
    )


if __name__ == "__main__":
    main()
