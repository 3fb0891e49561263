"""User tokens that the client signs, read by a library of others."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from clarion.client import sign_user_token

SECRET = "s" * 43


@pytest.mark.parametrize("user_id", ["ana", "ünal@x", "a b"])
def test_a_token_is_signed_with_the_secret_of_the_app(user_id: str) -> None:
    token = sign_user_token(app_id="shop", user_id=user_id, secret=SECRET, hours=0.5)
    claims = jwt.decode(token, SECRET, algorithms=["HS256"], audience="shop")
    assert claims["sub"] == user_id
    assert claims["exp"] - claims["iat"] == 1800
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, SECRET[::-1] + "x", algorithms=["HS256"], audience="shop")


def test_a_token_can_be_signed_with_a_private_key() -> None:
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    token = sign_user_token(app_id="shop", user_id="ana", secret=pem, algorithm="EdDSA")
    claims = jwt.decode(token, key.public_key(), algorithms=["EdDSA"], audience="shop")
    assert claims["sub"] == "ana"
