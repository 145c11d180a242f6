"""SEAL's opinion on parameters and products; skipped where tenseal is not installed (pip install tenseal)."""

from __future__ import annotations

import numpy as np
import pytest
from test_packing import packing

from thinwire_private.net.nodes import columns
from thinwire_private.rlwe.parameters import DEGREE, MAX_LOG_Q, STANDARD

seal = pytest.importorskip("tenseal.sealapi", reason="SEAL is compared with only where tenseal is installed")
WIDTH = 18


def test_the_table_is_seals() -> None:
    for degree, bits in STANDARD.items():
        assert seal.CoeffModulus.MaxBitCount(degree, seal.SEC_LEVEL_TYPE.TC128) == bits
    assert seal.CoeffModulus.MaxBitCount(DEGREE, seal.SEC_LEVEL_TYPE.TC128) == MAX_LOG_Q


def polynomial(coefficients: np.ndarray) -> object:
    """A plaintext of SEAL, coefficients modulo 2^18."""
    terms = [(int(c) % (1 << WIDTH), place) for place, c in enumerate(coefficients)]
    return seal.Plaintext(" + ".join(f"{c:X}x^{place}" for c, place in reversed(terms) if c))


@pytest.mark.parametrize("shape", [(4, 8, 8, 3, 3, 1, 1, 1), (3, 9, 9, 2, 3, 2, 1, 2)], ids=str)
def test_seal_multiplies_our_polynomials_to_the_same_outputs(shape: tuple[int, ...]) -> None:
    channels, height, width, outputs, kernel, stride, padding, batch = shape
    dice = np.random.default_rng(0)
    x = dice.integers(0, 1 << WIDTH, (batch, channels, height, width), dtype=np.uint64)
    w = dice.integers(-8, 8, (outputs, channels, kernel, kernel))
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus(seal.CoeffModulus.BFVDefault(DEGREE, seal.SEC_LEVEL_TYPE.TC128))
    parameters.set_plain_modulus(1 << WIDTH)
    context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
    generator = seal.KeyGenerator(context)
    secret = generator.secret_key()
    encryptor, decryptor = seal.Encryptor(context, secret), seal.Decryptor(context, secret)
    evaluator, plan = seal.Evaluator(context), packing(shape)
    taps, size = plan.taps(w), plan.rows.outputs * plan.columns.outputs
    found = np.zeros(outputs * batch * size, np.int64)
    for group in range(plan.num_groups):
        sealed = []
        for message in plan.messages(x, group):
            sealed.append(seal.Ciphertext(context))
            encryptor.encrypt_symmetric(polynomial(message), sealed[-1])
        for number in range(plan.num_outputs):
            places, targets = plan.answers(group, number)
            for ciphertext, factor in zip(sealed, plan.factors(taps, number), strict=True):
                product, opened = seal.Ciphertext(context), seal.Plaintext()
                evaluator.multiply_plain(ciphertext, polynomial(factor), product)
                decryptor.decrypt(product, opened)
                values = [opened[int(place)] if place < opened.coeff_count() else 0 for place in places]
                found[targets] += np.array(values, np.int64)
    flat = np.concatenate(list(columns(x.astype(np.int64), kernel, stride, padding)), axis=1)
    right = (w.reshape(outputs, -1) @ flat) % (1 << WIDTH)
    assert np.array_equal(found.reshape(outputs, -1) % (1 << WIDTH), right)
