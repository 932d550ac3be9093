#!/usr/bin/env python3
"""Makes vectors.rs, the known answers of these tests, from ledger-format.md alone:

    python3 vectors.py > vectors.rs && rustfmt vectors.rs

Needs the packages blake3 and cryptography. Nothing here shares code with the crate.
"""

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

CONTEXT = "ledger-format v1 "


def derive(context, material, length=32):
    return blake3(material, derive_key_context=CONTEXT + context).digest(length=length)


def keyed(key, data, length=32):
    return blake3(data, key=key).digest(length=length)


def u64(n):
    return n.to_bytes(8, "big")


def pad(message, envelope=False):
    n = 4 + len(message)
    if envelope or n <= 4096:
        padded = -(-n // 256) * 256
    else:
        e = n.bit_length() - 1
        s = e.bit_length()
        step = 1 << (e - s)
        padded = -(-n // step) * step
    return (len(message).to_bytes(4, "big") + message).ljust(padded, b"\0")


def secret(key, label, number, salt):
    return keyed(key, label.ljust(8, b"\0") + u64(number) + salt)


def seal(r, associated, padded):
    key = derive("section key and commitment", r, 64)[:32]
    return ChaCha20Poly1305(key).encrypt(bytes(12), padded, associated or None)


def show(name, value):
    print(f'pub(crate) const {name}: &str = "{value.hex()}";')


def main():
    print("//! Known answers, made by `vectors.py` beside this file. Not written by hand.\n")
    data, envelope, token, payload = (bytes([b]) * 32 for b in (1, 2, 3, 4))
    salt, seq, offset = bytes(range(16)), 0x0102030405060708, 19
    show("DATA_COMMITMENT", derive("key commitment data", data))
    show("ENVELOPE_COMMITMENT", derive("key commitment envelope", envelope))
    show("TOKEN_COMMITMENT", derive("key commitment token", token))
    show("PAYLOAD_COMMITMENT", derive("key commitment payload", payload))

    body = b"body plaintext"
    r = secret(data, b"body", seq, salt)
    show("BODY_SECRET", r)
    show("BODY_SECTION_COMMITMENT", derive("section key and commitment", r, 64)[32:])
    show("SEALED_BODY", seal(r, b"", pad(body)))
    long_body = b"b" * 9000
    show("SEALED_LONG_BODY_HASH", blake3(seal(r, b"", pad(long_body))).digest())

    associated = b"\x01" + bytes([9]) * 32 + b"frame prefix"
    r = secret(envelope, b"envelope", seq, salt)
    show("SEALED_ENVELOPE", seal(r, associated, pad(b"envelope plaintext", True)))
    r = secret(payload, b"payload", offset, salt)
    show("SEALED_PAYLOAD", seal(r, b"", pad(b"raw payload")))

    # Stands in src/seal.rs: a salt source of known bytes cannot be made from outside.
    print("// SALT", keyed(bytes([5]) * 32, u64(seq) + blake3(body).digest())[:16].hex())
    show("TAG", keyed(derive("control tag key", envelope), associated)[:16])
    show("RECORD_DIGEST", keyed(derive("record digest key", envelope), b"canonical record")[:16])
    t = keyed(token, bytes([5, 0, 5]) + b"scope" + b"value")
    show("TOKEN", t)
    show("LEAF_SALT", keyed(derive("index leaf salt key", envelope), t + u64(seq))[:16])

    signer = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    show("PUBLIC_KEY", signer.public_key().public_bytes_raw())
    show("MESSAGE_SIGNATURE", signer.sign(b"checkpoint text"))
    show("GENESIS_SIGNATURE", signer.sign(derive("genesis signature", associated)))
    show("OPEN_SIGNATURE", signer.sign(derive("segment-open signature", associated)))


if __name__ == "__main__":
    main()
