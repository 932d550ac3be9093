//! Every secret byte of the ledger: keys, wrapping, sealing, signing
