//! The configuration of the documentation is one that is accepted.

use ledger_server::{Config, Role};

#[test]
fn the_documented_configuration_is_accepted() {
    let text = include_str!("../../ledger.toml");
    let config = Config::parse(text).unwrap();
    let roles: Vec<Role> = config.listeners.iter().map(|l| l.role).collect();
    assert_eq!(roles, [Role::Writer, Role::Reader, Role::Operator]);
    // Every setting stands in it, with its default where it is commented as such.
    let defaults = Config::default();
    assert_eq!(config.limits, defaults.limits);
    assert_eq!(config.drain_time, defaults.drain_time);
    assert_eq!(config.writer.segment_len, defaults.writer.segment_len);
    assert_eq!(
        config.writer.checkpoint_delay,
        defaults.writer.checkpoint_delay
    );
    assert_eq!(config.writer.reserve_soft, defaults.writer.reserve_soft);
}
