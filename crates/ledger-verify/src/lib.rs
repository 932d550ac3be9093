//! Keyless, offline verifier of ledgers
