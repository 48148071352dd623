//! Tests of the sentences that errors say.

use super::*;

#[test]
fn what_the_operating_system_refused_is_told_with_what_helps() {
    let said = |errno| {
        let refused = io::Error::from_raw_os_error(errno);
        Error::io("open", Path::new("/s/control"), refused).to_string()
    };
    for (errno, helps) in [
        (libc::ENOENT, "check the path"),
        (libc::EACCES, "give this user permission"),
        (libc::EROFS, "remount it"),
        (libc::EMFILE, "ulimit -n"),
        (libc::ENFILE, "fs.file-max"),
        (libc::ELOOP, "needs a file here, not a link"),
        (libc::ENOMEM, "vm.max_map_count"),
        (libc::ENAMETOOLONG, "a shorter path"),
        (libc::EIO, "falaj verify"),
        (libc::ENOSPC, "is lost, free space and retry"),
        (libc::EDQUOT, "within this user's quota"),
        (libc::EFBIG, "is lost, raise the limit on the size of files, `ulimit -f`, and retry"),
        (libc::EBUSY, "fix that, then retry"),
    ] {
        let (sentence, number) = (said(errno), format!("(os error {errno}); "));
        let (situation, remedy) = sentence.split_once(&number).unwrap();
        assert!(situation.starts_with("cannot open /s/control: "), "{sentence}");
        assert!(remedy.contains(helps), "{sentence}");
    }
}
#[test]
fn an_entry_of_a_kind_that_only_a_newer_falaj_knows_is_told_by_its_number() {
    let told = Error::malformed(Path::new("/s/00.log"), 8192, DecodeError::UnknownEntry(9));
    assert_eq!(
        told.to_string(),
        "/s/00.log at byte 8192 needs a newer falaj (an entry of kind 9): upgrade to read it"
    );
}

#[test]
fn an_expected_offset_beyond_the_end_is_not_told_as_the_append_of_another() {
    let said = |expected, partition| {
        let topic = "orders".to_owned();
        Error::OffsetConflict { topic, partition, expected, next: 3 }.to_string()
    };
    assert!(said(2, 0).starts_with("another append to topic \"orders\" came first"));
    assert_eq!(
        said(7, 1),
        "the next offset of topic \"orders\", partition 1, is 3, not 7, which lies beyond the end: \
         nothing was appended; read up to the end and decide again"
    );
}

#[test]
fn what_was_opened_for_reading_is_named_by_its_store_and_not_by_the_directory_of_a_log() {
    let said = |path: &str| Error::NotWritable { path: path.into() }.to_string();
    let log = format!("/srv/logs/logs/orders@{}", "0".repeat(32));
    assert!(said(&log).starts_with("/srv/logs was opened for reading"));
    assert!(said("/srv/logs/events").starts_with("/srv/logs/events was opened for reading"));
    assert!(said("/srv/logs/a@b").starts_with("/srv/logs/a@b was opened for reading"));
}
