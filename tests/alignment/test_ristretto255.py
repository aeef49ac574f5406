"""The group against the published vectors of RFC 9496, its laws, and what must be refused."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from cutlayer.alignment import ristretto255
from cutlayer.alignment.ristretto255 import hash_to_group, multiply, random_points, random_scalar
from cutlayer.errors import ProtocolError

ORDER = 2**252 + 27742317777372353535851937790883648493

# RFC 9496, appendix A.1: multiples 1 to 3 of the generator.
MULTIPLES = [
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
]
# Appendix A.2: 64 uniform bytes to a point; the first two inputs are SHA-512 of these texts.
HASHED = {
    "Ristretto is traditionally a short shot of espresso coffee": (
        "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"
    ),
    "made with the normal amount of ground coffee but extracted with": (
        "f26e5b6f7d362d2d2a94c5d0e7602cb4773c95a2e5c31a64f133189fa76ed61b"
    ),
}
# Appendix A.3: encodings of no point.
INVALID = [
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
    "c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78",
    "47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24",
    "f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72",
    "87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f",
    "de6a7b00deadc788eb6b6c8d20c0ae96c2f2019078fa604fee5b87d6e989ad7b",
    "bcab477be20861e01e4a0e295284146a510150d9817763caf1a6f4b422d67042",
    "2a292df7e32cababbd9de088d1d1abec9fc0440f637ed2fba145094dc14bea08",
    "f4a9e534fc0d216c44b218fa0c42d99635a0127ee2e53c712f70609649fdff22",
    "8268436f8c4126196cf64b3c7ddbda90746a378625f9813dd9b8457077256731",
    "2810e5cbc2cc4d4eece54f61c6f69758e289aa7ab440b3cbeaa21995c2f4232b",
    "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220",
    "d483fe813c6ba647ebbfd3ec41adca1c6130c2beeee9d9bf065c8d151c5f396e",
    "8a2e1d30050198c65a54483123960ccc38aef6848e1ec8f5f780e8523769ba32",
    "32888462f8b486c68ad7dd9610be5192bbeaf3b443951ac1a8118419d9fa097b",
    "227142501b9d4355ccba290404bde41575b037693cef1f438c47f8fbf35d1165",
    "5c37cc491da847cfeb9281d407efc41e15144c876e0170b499a96a22ed31e01e",
    "445425117cb8c90edcbc7c1cc0e74f747f2c1efa5630a967c64f287792a48a4b",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def encoded(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8).reshape(1, 32)


def scalar(value: int) -> bytes:
    return (value % ORDER).to_bytes(32, "little")


@pytest.mark.parametrize("factor", [2, 3])
def test_multiples_of_the_generator(factor: int) -> None:
    assert multiply(encoded(MULTIPLES[0]), scalar(factor)).tobytes().hex() == MULTIPLES[factor - 1]


@pytest.mark.parametrize("text", HASHED)
def test_the_map_of_uniform_bytes(text: str) -> None:
    hashed = np.frombuffer(hashlib.sha512(text.encode()).digest(), dtype=np.uint8).reshape(1, 64)
    assert ristretto255._mapped(hashed).tobytes().hex() == HASHED[text]


def test_hashing_is_the_map_of_sha512_of_context_and_value() -> None:
    values = np.frombuffer(b"abcdefgh", dtype=np.uint8).reshape(2, 4)
    wanted = [hashlib.sha512(b"\x07context" + value).digest() for value in (b"abcd", b"efgh")]
    mapped = ristretto255._mapped(np.frombuffer(b"".join(wanted), dtype=np.uint8).reshape(2, 64))
    assert (hash_to_group(values, b"context") == mapped).all()
    assert not (hash_to_group(values, b"other") == mapped).all(axis=1).any()
    assert (hash_to_group(values[::-1], b"context") == mapped[::-1]).all()


@pytest.mark.parametrize("text", [*INVALID, "00" * 32])
def test_what_is_no_point_is_refused_wherever_it_stands(text: str) -> None:
    points = random_points(5)
    points[3] = encoded(text)
    with pytest.raises(ProtocolError, match="in row 3"):
        multiply(points, random_scalar())


@pytest.mark.parametrize("wrong", [np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((1, 32), np.int64)])
def test_another_shape_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ProtocolError, match="points of 32 bytes"):
        multiply(wrong, random_scalar())


def test_scalars_commute_and_invert() -> None:
    points = random_points(20)
    one, other = random_scalar(), random_scalar()
    assert (multiply(multiply(points, one), other) == multiply(multiply(points, other), one)).all()
    inverse = pow(int.from_bytes(one, "little"), -1, ORDER)
    assert (multiply(multiply(points, one), scalar(inverse)) == points).all()
    assert not (multiply(points, one) == points).all(axis=1).any()


def test_scalars_and_points_are_new_each_time_and_in_range() -> None:
    scalars = {random_scalar() for _ in range(200)}
    assert len(scalars) == 200
    assert all(0 < int.from_bytes(item, "little") < ORDER for item in scalars)
    assert len({point.tobytes() for point in random_points(200)}) == 200


def test_rows_of_a_view_and_no_rows() -> None:
    points = random_points(10)
    one = random_scalar()
    assert (multiply(points[::2], one) == multiply(points, one)[::2]).all()
    assert multiply(points[:0], one).shape == (0, 32)
    assert hash_to_group(np.zeros((0, 16), np.uint8), b"").shape == (0, 32)
