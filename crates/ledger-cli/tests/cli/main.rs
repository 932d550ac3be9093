//! The command `ledger` from outside: what it prints, how it ends, what it leaves on the disk.
//!
//! Not how a chain is judged: that is tested on the fixtures, in the crates that judge.

mod bench;
mod forge;
mod help;
mod reading;
mod secrets;
mod serving;
mod writing;
