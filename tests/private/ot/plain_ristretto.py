"""ristretto255 in plain Python, from RFC 9496: slow and not constant time, for the twin only."""

from __future__ import annotations

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]  # extended coordinates X, Y, Z, T


def _negative(a: int) -> bool:
    return a % P % 2 == 1


def _absolute(a: int) -> int:
    return -a % P if _negative(a) else a % P


def _sqrt_ratio(u: int, v: int) -> tuple[bool, int]:
    r = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    check = v * r * r % P
    correct, flipped, flipped_i = check == u % P, check == -u % P, check == -u * SQRT_M1 % P
    if flipped or flipped_i:
        r = r * SQRT_M1 % P
    return correct or flipped, _absolute(r)


ONE_MINUS_D_SQ = (1 - D * D) % P
D_MINUS_ONE_SQ = (D - 1) ** 2 % P
SQRT_AD_MINUS_ONE = 25063068953384623474111414158702152701244531502492656460079210482610430750235
INVSQRT_A_MINUS_D = 54469307008909316920995813868745141605393597292927456921205312896311721017578
GENERATOR: Point = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
    1,
    46827403850823179245072216630277197565144205554125654976674165829533817101731,
)


def add(p: Point, q: Point) -> Point:
    """RFC 8032's complete addition."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def negate(p: Point) -> Point:
    return -p[0] % P, p[1], p[2], -p[3] % P


def multiply(scalar: int, p: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = add(total, p)
        p, scalar = add(p, p), scalar >> 1
    return total


def decode(data: bytes) -> Point:
    s = int.from_bytes(data, "little")
    if s >= P or _negative(s):
        raise ValueError("not canonical")
    ss = s * s % P
    u1, u2 = (1 - ss) % P, (1 + ss) % P
    v = (-(D * u1 * u1) - u2 * u2) % P
    square, root = _sqrt_ratio(1, v * u2 * u2 % P)
    x_den, y_den = root * u2 % P, root * root * u2 * v % P
    x, y = _absolute(2 * s * x_den), u1 * y_den % P
    t = x * y % P
    if not square or _negative(t) or y == 0:
        raise ValueError("not a point")
    return x, y, 1, t


def encode(p: Point) -> bytes:
    x, y, z, t = p
    u1, u2 = (z + y) * (z - y) % P, x * y % P
    _, root = _sqrt_ratio(1, u1 * u2 * u2 % P)
    den1, den2 = root * u1 % P, root * u2 % P
    z_inv = den1 * den2 * t % P
    ix, iy = x * SQRT_M1 % P, y * SQRT_M1 % P
    rotate = _negative(t * z_inv)
    if rotate:
        x, y, den = iy, ix, den1 * INVSQRT_A_MINUS_D % P
    else:
        den = den2
    if _negative(x * z_inv):
        y = -y % P
    return _absolute(den * (z - y)).to_bytes(32, "little")


def _map(data: bytes) -> Point:
    t = int.from_bytes(data, "little") % 2**255 % P
    r = SQRT_M1 * t * t % P
    u = (r + 1) * ONE_MINUS_D_SQ % P
    v = (-1 - r * D) * (r + D) % P
    square, s = _sqrt_ratio(u, v)
    s_prime = -_absolute(s * t) % P
    s, c = (s, -1) if square else (s_prime, r)
    n = (c * (r - 1) * D_MINUS_ONE_SQ - v) % P
    w0, w1 = 2 * s * v % P, n * SQRT_AD_MINUS_ONE % P
    w2, w3 = (1 - s * s) % P, (1 + s * s) % P
    return w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P


def from_hash(data: bytes) -> Point:
    return add(_map(data[:32]), _map(data[32:]))
