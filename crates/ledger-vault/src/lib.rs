//! Every secret byte of the ledger: segment keys, sealing, control tags, signing keys, their files,
//! and the age wrapping that hands segment keys to their readers.
//!
//! It implements sections 11, 12 and 13 of `ledger-format.md` as far as secrets are concerned.
//! It is not a parser of frames and not a verifier: it sees byte strings and returns byte strings,
//! reads no clock and no configuration, and prints nothing.
//!
//! What holds for every type that carries a secret:
//!
//! * it is wiped when dropped, and lives in a heap box of its own where it lives long, so that moves leave no copy behind;
//! * its `Debug` output names the type and nothing else, and no error carries secret bytes;
//! * comparison takes the same time wherever the difference stands;
//! * it cannot be copied out, except by the methods that say so: [`SectionSecret::reveal`], the files of [`KeyDir`], age wrapping.
//!
//! What is not promised: registers and stack frames of the primitives are not wiped, and memory is
//! not locked (see [`harden_process`]).
//!
//! ```
//! use ledger_format::{Link, Seq};
//! use ledger_vault::{AssociatedData, DataKey, EnvelopeKey, SaltSource};
//!
//! let (data, envelope) = (DataKey::generate()?, EnvelopeKey::generate()?);
//! let seq = Seq(7);
//! let salt = SaltSource::fresh()?.record_salt(seq, b"the body");
//!
//! let mut body = Vec::new();
//! let sealer = data.body_sealer(seq, &salt);
//! let commitment = sealer.commitment();
//! sealer.seal(b"the body", &mut body)?;
//!
//! let mut associated = AssociatedData::new();
//! associated.set(&Link::ZERO, &body);
//! let mut sealed_envelope = Vec::new();
//! envelope.seal_envelope(seq, &salt, &associated, b"the envelope", &mut sealed_envelope)?;
//!
//! assert_eq!(&*data.open_body(seq, &salt, &commitment, &body)?, b"the body");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod context;
mod harden;
mod identities;
mod identity_file;
mod index_key;
mod keydir;
mod keys;
mod pad;
mod passphrase;
mod recipients;
mod seal;
mod segment;
mod signing;
mod tags;
mod wrap;

pub use harden::{HardenError, harden_process};
pub use identities::{Identities, IdentityError};
pub use identity_file::{EncryptedIdentities, IdentityFile};
pub use keydir::{FoundKind, KeyDir, KeyFileError};
pub use keys::{
    DataKey, DigestKey, EnvelopeKey, IndexKey, KeyCommitment, LeafSaltKey, PayloadKey, RandomError,
    RecordDigest, TagKey, TokenKey,
};
pub use pad::{body_sealed_len, envelope_sealed_len};
pub use passphrase::Passphrase;
pub use recipients::{Recipient, Recipients, RecipientsError};
pub use seal::{
    BodySealer, Commitment, OpenError, Plaintext, Salt, SaltSource, SealError, Section,
    SectionSecret,
};
pub use segment::{
    KeyCommitments, RetentionClass, RetentionClassError, SegmentKeyFiles, SegmentKeys,
    SegmentKeysError, UnwrapKeyError, unwrap_data_key, unwrap_envelope_keys, unwrap_payload_key,
};
pub use signing::{EpochKey, EpochKeyFile, LogKey};
pub use tags::{AssociatedData, TagMismatch};
pub use wrap::{UnwrapError, WrapError, unwrap, wrap};
