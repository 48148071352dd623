//! The files of a place: what is synced before it is shown, pages of listings, links, drafts, secrets.

use std::fs as std_fs;

use super::*;

fn place() -> (tempfile::TempDir, Place) {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::begin(dir.path().join("place")).unwrap();
    (dir, place)
}

fn put(place: &Place, key: &str, body: &[u8]) -> bool {
    let mut draft = place.draft().unwrap();
    draft.write(body).unwrap();
    place.publish(draft, key).unwrap()
}

fn read(place: &Place, key: &str) -> Option<Vec<u8>> {
    let object = place.get(key).unwrap()?;
    Some(object.read(0, usize::try_from(object.size).unwrap()).unwrap())
}

fn steps(place: &Place) -> Vec<String> {
    std::mem::take(&mut enter(&place.steps))
}

fn keys(place: &Place, prefix: &str, after: &str, most: usize) -> Vec<String> {
    let prefix = check_prefix(prefix).unwrap();
    place.list(&prefix, after, most).unwrap().into_iter().map(|one| one.key).collect()
}

#[test]
fn what_is_created_is_synced_before_it_has_a_name_and_its_folders_after() {
    let (dir, place) = place();
    assert!(put(&place, "a/b/c", b"x"));
    let first = ["sync draft", "sync names of ", "sync names of a", "link", "sync entries of a/b"];
    assert_eq!(steps(&place), first);
    assert!(!put(&place, "a/b/c", b"y"));
    assert_eq!(steps(&place), ["sync draft", "link", "sync entries of a/b"]);
    assert_eq!(read(&place, "a/b/c").unwrap(), b"x");
    assert_eq!(steps(&place), [""; 0], "it is on stable storage already");
    assert_eq!(std_fs::read_dir(dir.path().join("place/.new")).unwrap().count(), 0);
}

#[test]
fn an_object_that_another_process_linked_is_synced_before_it_is_shown() {
    let (dir, place) = place();
    let folder = dir.path().join("place/a/b");
    std_fs::create_dir_all(&folder).unwrap();
    std_fs::write(folder.join("c"), b"x").unwrap();
    assert_eq!(read(&place, "a/b/c").unwrap(), b"x");
    assert_eq!(steps(&place), ["sync names of ", "sync names of a", "sync entries of a/b"]);
    assert_eq!(read(&place, "a/b/c").unwrap(), b"x");
    assert_eq!(steps(&place), [""; 0]);
}

#[test]
fn an_object_whose_create_has_not_ended_is_synced_before_it_is_shown() {
    let (dir, place) = place();
    assert!(put(&place, "a/b", b"x"));
    steps(&place);
    // A create that linked its name, and is not yet synced or failed to.
    enter(&place.synced).linking.insert("a".to_owned(), 1);
    std_fs::write(dir.path().join("place/a/c"), b"y").unwrap();
    assert_eq!(read(&place, "a/c").unwrap(), b"y");
    assert_eq!(steps(&place), ["sync entries of a"]);
}

#[test]
fn pages_of_any_size_list_each_object_once_in_order_of_keys() {
    let (dir, place) = place();
    let mut all = ["n/1", "n/2", "n-x/1", "n/10", "n.y", "n/2d/deep", "n/2-x", "o/1", "p/q/r/s"];
    for key in all {
        assert!(put(&place, key, key.as_bytes()));
    }
    for empty in ["0", "n/0", "n/5", "zz"] {
        std_fs::create_dir_all(dir.path().join("place").join(empty)).unwrap();
    }
    std_fs::write(dir.path().join("place/n/.hidden"), b"x").unwrap();
    all.sort_unstable();
    for most in 1..=all.len() + 1 {
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let page = keys(&place, "", &after, most);
            assert!(page.len() <= most);
            let Some(last) = page.last() else { break };
            after.clone_from(last);
            listed.extend(page);
        }
        assert_eq!(listed, all, "{most}");
    }
    assert_eq!(keys(&place, "n", "n/2-x", 9), ["n/2d/deep"]);
    assert_eq!(keys(&place, "n/", "", 2), ["n/1", "n/10"]);
    assert_eq!(keys(&place, "nowhere", "", 9), [""; 0]);
}

#[test]
fn a_key_below_an_object_is_refused_by_its_name() {
    let (_dir, place) = place();
    assert!(put(&place, "a/b", b"x"));
    let is_taken = |failure: Option<Failure>| {
        assert!(matches!(&failure, Some(Failure::Taken(path)) if path == "a/b"), "{failure:?}");
    };
    is_taken(place.get("a/b/c").err());
    is_taken(place.list("a/b/", "", 9).err());
    is_taken(place.delete("a/b/c/d").err());
    is_taken(place.publish(place.draft().unwrap(), "a/b/c").err());
    assert_eq!(read(&place, "a/b").unwrap(), b"x");
}

#[test]
fn no_symbolic_link_leads_out_of_the_place() {
    let (dir, place) = place();
    let (root, outside) = (dir.path().join("place"), dir.path().join("outside"));
    std_fs::create_dir(&outside).unwrap();
    std_fs::write(outside.join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(&outside, root.join("folder")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), root.join("file")).unwrap();
    let is_link = |failure: Option<Failure>| {
        assert!(
            matches!(failure, Some(Failure::Call(_, Errno::LOOP | Errno::NOTDIR))),
            "{failure:?}"
        );
    };
    is_link(place.get("folder/secret").err());
    is_link(place.get("file").err());
    is_link(place.delete("folder/secret").err());
    is_link(place.publish(place.draft().unwrap(), "folder/new").err());
    assert!(!put(&place, "file", b"x"));
    assert_eq!(keys(&place, "", "", 9), [""; 0]);
    assert_eq!(std_fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn drafts_of_dead_processes_are_deleted_and_those_of_live_ones_are_not() {
    let (dir, place) = place();
    let kept = place.draft().unwrap();
    let new = dir.path().join("place/.new");
    std_fs::write(new.join("dead"), b"half").unwrap();
    assert_eq!(std_fs::read_dir(&new).unwrap().count(), 2);
    Place::begin(dir.path().join("place")).unwrap();
    assert_eq!(std_fs::read_dir(&new).unwrap().count(), 1);
    assert!(place.publish(kept, "a").unwrap());
    let lost = place.draft().unwrap();
    for draft in std_fs::read_dir(&new).unwrap() {
        std_fs::remove_file(draft.unwrap().path()).unwrap();
    }
    assert!(matches!(place.publish(lost, "b"), Err(Failure::Swept)));
    assert_eq!(read(&place, "b"), None);
}

#[test]
fn a_place_whose_disk_is_gone_is_an_error_and_not_empty() {
    let (dir, place) = place();
    assert!(put(&place, "a", b"x"));
    std_fs::rename(dir.path().join("place"), dir.path().join("unplugged")).unwrap();
    for is_mount_point in [false, true] {
        if is_mount_point {
            std_fs::create_dir(dir.path().join("place")).unwrap();
        }
        assert!(matches!(place.get("a"), Err(Failure::Gone(_))));
        assert!(matches!(place.list("", "", 9), Err(Failure::Gone(_))));
        assert!(matches!(place.draft(), Err(Failure::Gone(_))));
        assert!(matches!(place.delete("a"), Err(Failure::Gone(_))));
    }
}

#[test]
fn a_place_with_secrets_in_it_is_refused_before_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std_fs::create_dir(dir.path().join("store")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("store"), dir.path().join("link")).unwrap();
    let config = |place: &str, principals: &str| {
        let mut config = Config { store: path("store"), place: path(place), ..Config::default() };
        config.access.principals = principals.to_owned();
        config
    };
    for place in ["store", "", "store/place", "link", "link/place", "store/../store"] {
        let refused = Place::open(&config(place, "")).unwrap_err();
        assert!(refused.contains("side by side"), "{place}: {refused}");
    }
    let refused = Place::open(&config("place", &path("place/principals.toml"))).unwrap_err();
    assert!(refused.contains("access.principals"), "{refused}");
    assert_eq!(std_fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was made");
    assert!(Place::open(&config("place", "")).unwrap().is_some());
    assert!(Place::open(&Config::default()).unwrap().is_none());
    assert!(Place::open(&config("no/place", "")).unwrap_err().contains("directory that exists"));
}
