//! The index and the tiles as their users have them: against a model, damaged, shared, and over time.

mod damage;
mod keys;
mod model;
mod sharing;
mod support;
mod tiles;
