//! Meaning of the ledger: record types, states, secret guard
