//! The one append path: group commit, segments, recovery, checkpoints, rotation
