//! How a command ends: its exit code, and an error as people read it.
//!
//! Not where errors are made: commands say what was expected, what was found and where.

use std::fmt;
use std::process::ExitCode;

/// Exit codes, the same for every command; those of `verify` are a superset (its help lists them).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// All of it was done.
    Done,
    /// It ran, and something was refused or does not hold: a bad line, a broken chain, a key that does not open.
    Refused,
    /// It ran, and what was asked for is not all there.
    Incomplete,
    /// It could not run.
    CouldNotRun,
    /// `trace` found a story that contradicts itself.
    Contradicted,
    /// The command line was wrong.
    Usage,
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Incomplete => 2,
            Self::CouldNotRun => 3,
            Self::Contradicted => 5,
            Self::Usage => 64,
        }
    }

    /// The more serious of two outcomes: 1 before 2 before 0, as `verify` ranks them.
    pub(crate) const fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done, end) | (end, Self::Done) => end,
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (end, _) => end,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that knows its exit code and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// It could not run.
    pub(crate) fn could_not_run(message: impl Into<String>) -> Self {
        Self::new(Exit::CouldNotRun, message)
    }

    /// The command line was wrong in a way that the parser cannot see.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_outcome_stays() {
        assert_eq!(Exit::Done.worse(Exit::Incomplete), Exit::Incomplete);
        assert_eq!(Exit::Incomplete.worse(Exit::Refused), Exit::Refused);
        assert_eq!(Exit::Refused.worse(Exit::Done), Exit::Refused);
        assert_eq!(Exit::Done.worse(Exit::Done), Exit::Done);
    }
}
