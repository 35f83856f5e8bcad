//! Users and groups by name and number, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)). Accounts that are
//! only in a directory service or in systemd are not found; callers then show the number.

use std::path::Path;

use super::regular_file;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// Upper bound of the size of either file in bytes; a larger one is treated as empty.
const MAX_ACCOUNT_FILE_BYTES: u64 = 4 << 20;

/// The numbers of a user account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserAccount {
    /// The user id.
    pub uid: u32,
    /// The id of the user's primary group.
    pub gid: u32,
}

/// Returns the name of the user with this id.
pub fn find_user_name(uid: u32) -> Option<String> {
    // An image may have no /etc/passwd.
    find_name_in(&read_account_file(PASSWD), uid).or_else(|| (uid == 0).then(|| "root".to_owned()))
}

/// Returns `docwharf (uid 998)` for messages, or `uid 998` if the number has no name.
pub fn describe_user(uid: u32) -> String {
    find_user_name(uid).map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

/// Finds a user by name or by number. A number needs no entry in `/etc/passwd`; without one, the group id is the same
/// number.
pub fn find_user(name: &str) -> Option<UserAccount> {
    find_user_in(&read_account_file(PASSWD), name)
}

/// Returns the id of a group by name or by number.
pub fn find_group_id(name: &str) -> Option<u32> {
    find_group_id_in(&read_account_file(GROUP), name)
}

/// Returns the ids of the groups that list this user as a member.
pub fn find_group_ids(name: &str) -> Vec<u32> {
    find_group_ids_in(&read_account_file(GROUP), name)
}

/// Replaces `uid 0` by `root`, if the number has a name; returns any other text unchanged. Records written without a
/// login name hold the form `uid <number>`.
pub fn resolve_uid_name(name: &str) -> String {
    let uid = name.strip_prefix("uid ").and_then(|number| number.parse().ok());
    uid.and_then(find_user_name).unwrap_or_else(|| name.to_owned())
}

fn read_account_file(path: &str) -> String {
    regular_file::read_text(Path::new(path), MAX_ACCOUNT_FILE_BYTES).unwrap_or_default()
}

fn split_fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

fn find_name_in(passwd: &str, uid: u32) -> Option<String> {
    let line =
        passwd.lines().map(split_fields).find(|fields| fields.get(2).and_then(|n| n.parse().ok()) == Some(uid))?;
    line.first().filter(|name| !name.is_empty()).map(|name| (*name).to_owned())
}

fn find_user_in(passwd: &str, name: &str) -> Option<UserAccount> {
    let number: Option<u32> = name.parse().ok();
    let parse_match = |fields: Vec<&str>| {
        let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        let is_match = fields.first() == Some(&name) || number == Some(uid);
        is_match.then_some(UserAccount { uid, gid })
    };
    // A number needs no entry in the file.
    passwd.lines().map(split_fields).find_map(parse_match).or(number.map(|uid| UserAccount { uid, gid: uid }))
}

fn find_group_id_in(groups: &str, name: &str) -> Option<u32> {
    let entry = groups.lines().map(split_fields).find(|fields| fields.first() == Some(&name));
    entry.and_then(|fields| fields.get(2)?.parse().ok()).or_else(|| name.parse().ok())
}

fn find_group_ids_in(groups: &str, name: &str) -> Vec<u32> {
    let is_member =
        |fields: &Vec<&str>| fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name));
    groups.lines().map(split_fields).filter(is_member).filter_map(|fields| fields.get(2)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nalice:x:1000:1001::/home/alice:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nwriters:x:50:alice,bob\ninbox:x:51:bob\nadm:x:4:alice\n";

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        assert_eq!(find_name_in(PASSWD, 0).as_deref(), Some("root"));
        assert_eq!(find_name_in(PASSWD, 7), None);
        assert_eq!(find_user_in(PASSWD, "alice"), Some(UserAccount { uid: 1000, gid: 1001 }));
        assert_eq!(find_user_in(PASSWD, "1000"), Some(UserAccount { uid: 1000, gid: 1001 }));
        assert_eq!(find_user_in(PASSWD, "77"), Some(UserAccount { uid: 77, gid: 77 }));
        assert_eq!(find_user_in(PASSWD, "absent"), None);
        assert_eq!(find_group_id_in(GROUP, "writers"), Some(50));
        assert_eq!(find_group_id_in(GROUP, "absent"), None);
        assert_eq!(find_group_ids_in(GROUP, "alice"), [50, 4]);
        assert_eq!(resolve_uid_name("alice"), "alice");
    }

    #[test]
    fn user_name_is_preferred_to_a_number_and_malformed_lines_are_ignored() {
        let malformed = ":x:7:7::/:\nshort:x\nletters:x:one:1::/:\n8:x:9:9::/:\nsecond:x:9:1::/:\n";
        assert_eq!((find_name_in(malformed, 7), find_name_in(malformed, 9).as_deref()), (None, Some("8")));
        assert_eq!((find_user_in(malformed, "short"), find_user_in(malformed, "letters")), (None, None));
        assert_eq!(find_user_in(malformed, "8"), Some(UserAccount { uid: 9, gid: 9 }));
        assert_eq!(find_user_in(PASSWD, "0"), Some(UserAccount { uid: 0, gid: 0 }));
        assert_eq!(
            (find_group_id_in(GROUP, "50"), find_group_id_in(GROUP, "77"), find_group_id_in(GROUP, "-1")),
            (Some(50), Some(77), None)
        );
        assert_eq!((find_group_ids_in(GROUP, "bob"), find_group_ids_in(GROUP, "ali")), (vec![50, 51], vec![]));
        assert_eq!((resolve_uid_name("uid 0"), describe_user(0)), ("root".to_owned(), "root (uid 0)".to_owned()));
        assert_eq!(describe_user(4_294_967_000), "uid 4294967000");
        assert_eq!(["0", "uid x", "uid"].map(resolve_uid_name), ["0", "uid x", "uid"]);
    }
}
