//! `index.age`: the index key, for the operational identity and the vault (section 12).
//!
//! A file that is lost or does not open is no loss: a new key is made, and with it a new index. What wraps
//! and unwraps is the vault's.

use ledger_vault::{
    Identities, IndexKey, KeyDir, KeyFileError, RandomError, Recipients, SegmentKeysError,
    UnwrapKeyError,
};
use thiserror::Error;

/// The file's name in the ledger's folder.
pub const INDEX_KEY_FILE: &str = "index.age";
/// No wrapped key is longer, bytes.
const FILE_LEN_MAX: usize = 65_536 + 256;

/// Why there is no index key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexKeyError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The file does not open.
    #[error(transparent)]
    Unwrap(#[from] UnwrapKeyError),
    /// A new key could not be wrapped.
    #[error(transparent)]
    Wrap(#[from] SegmentKeysError),
    /// No new key could be made.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Where the key came from.
#[derive(Debug)]
#[non_exhaustive]
pub enum IndexKeyFound {
    /// The file.
    Kept,
    /// There was no file.
    New,
    /// There was one that does not open any more.
    Replaced(UnwrapKeyError),
}

/// Reads the key of an existing index, for a reader that may not write.
///
/// # Errors
/// There is none, or none that these identities open.
pub fn load_key(folder: KeyDir<'_>, identities: &Identities) -> Result<IndexKey, IndexKeyError> {
    let file = folder.read_public(INDEX_KEY_FILE, FILE_LEN_MAX)?;
    Ok(IndexKey::unwrap(identities, &file)?)
}

/// Puts a key that is in use back into its file, unless it is there.
///
/// # Errors
/// The folder cannot be read or written, or the key could not be wrapped.
pub fn keep_key(
    folder: KeyDir<'_>,
    key: &IndexKey,
    identities: &Identities,
    vault: &Recipients,
    operational: &Recipients,
) -> Result<(), IndexKeyError> {
    match load_key(folder, identities) {
        Ok(found) if found == *key => Ok(()),
        Ok(_)
        | Err(IndexKeyError::File(KeyFileError::Missing { .. }) | IndexKeyError::Unwrap(_)) => {
            Ok(folder.replace(INDEX_KEY_FILE, &key.wrap(vault, operational)?)?)
        }
        Err(error) => Err(error),
    }
}

/// Reads the key, or makes a new one where there is none that opens.
///
/// # Errors
/// The folder cannot be read or written, or a new key could not be wrapped.
pub fn load_or_create_key(
    folder: KeyDir<'_>,
    identities: &Identities,
    vault: &Recipients,
    operational: &Recipients,
) -> Result<(IndexKey, IndexKeyFound), IndexKeyError> {
    let found = match load_key(folder, identities) {
        Ok(key) => return Ok((key, IndexKeyFound::Kept)),
        Err(IndexKeyError::File(KeyFileError::Missing { .. })) => IndexKeyFound::New,
        Err(IndexKeyError::Unwrap(error)) => IndexKeyFound::Replaced(error),
        Err(error) => return Err(error),
    };
    let key = IndexKey::generate()?;
    folder.replace(INDEX_KEY_FILE, &key.wrap(vault, operational)?)?;
    Ok((key, found))
}
