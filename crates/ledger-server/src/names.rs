//! Users and groups of this machine by name, from `/etc/passwd` and `/etc/group`.
//!
//! Not a resolver: directories behind NSS (LDAP) are not asked; name such users by number.

/// The number of a user.
#[must_use]
pub(crate) fn user_id(name: &str) -> Option<u32> {
    find(&std::fs::read_to_string("/etc/passwd").ok()?, name)
}

/// The number of a group.
#[must_use]
pub(crate) fn group_id(name: &str) -> Option<u32> {
    find(&std::fs::read_to_string("/etc/group").ok()?, name)
}

/// The third field of the line whose first is `name`: both files agree so far.
fn find(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_only() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbuild:x:1004:\nbad:x:y:\n";
        assert_eq!(find(table, "root"), Some(0));
        assert_eq!(find(table, "build"), Some(1004));
        assert_eq!(find(table, "buil"), None);
        assert_eq!(find(table, "bad"), None);
        assert_eq!(user_id("root"), Some(0));
    }
}
