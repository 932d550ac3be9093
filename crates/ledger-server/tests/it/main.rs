//! The daemon in this process, on a ledger of its own, over real sockets.

mod appends;
mod bounds;
mod clients;
mod config;
mod disk;
mod faults;
mod operation;
mod reads;
mod support;
