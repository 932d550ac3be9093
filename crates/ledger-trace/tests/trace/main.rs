//! Stories told from records: through a source in memory, and through ledgers that the writer wrote.

mod fake;
mod tell;

mod closing;
mod documented;
mod ledger;
mod published;
mod rules;
