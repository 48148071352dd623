//! Tokens: 256 random bits as text, their digests, and the store's own token.
//!
//! The store's own token lies in `server/token` of the store's directory, readable by its owner alone. A client that
//! may read that file can reach the store without the server, so the token gives it nothing new.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// SHA-256 of a token.
pub type Digest = [u8; 32];

/// Compute the digest of a token.
pub fn digest(token: &str) -> Digest {
    Sha256::digest(token.as_bytes()).into()
}

/// Make a new token.
///
/// # Errors
/// That of the kernel when it gives no random bytes.
pub fn mint() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes for a token: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Path of a store's own token.
pub fn path_of(store: &Path) -> PathBuf {
    store.join("server").join("token")
}

/// Read the store's own token, or make it. Two servers that start at once get the same one.
///
/// # Errors
/// A sentence that names the file.
pub fn make_or_read(store: &Path) -> Result<String, String> {
    let path = path_of(store);
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    match read(&path) {
        Ok(Some(token)) => return Ok(token),
        Ok(None) => {}
        Err(why) => return Err(told(&why)),
    }
    let dir = store.join("server");
    let made = fs::DirBuilder::new().mode(0o700).create(&dir);
    if let Err(error) = made
        .or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
    {
        return Err(format!("{}: {error}", dir.display()));
    }
    // It gets its name when it is whole: a link fails where another server was faster.
    let (token, other) = (mint()?, mint()?);
    let draft = dir.join(format!("token.{}.tmp", &other[..16]));
    let written = || {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(token.as_bytes())?;
        file.sync_all()?;
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => fs::File::open(&dir)?.sync_all(),
        }
    };
    written().map_err(|error| told(&error))?;
    read(&path)
        .map_err(|why| told(&why))?
        .ok_or_else(|| told(&"it was removed at this moment; start again"))
}

/// Read the store's own token, where there is one that this user may read: a server that only reads makes none.
///
/// # Errors
/// A sentence that names the file.
pub fn read_of(store: &Path) -> Result<Option<String>, String> {
    let path = path_of(store);
    // Readers of a store need not be its owner, whose token this is.
    if fs::File::open(&path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        return Ok(None);
    }
    read(&path).map_err(|why| format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "other users may read this token (mode {:o}); run chmod 600 on it, or delete it to get a new one",
            mode & 0o777
        ));
    }
    let token = std::io::read_to_string(file).map_err(|error| error.to_string())?;
    parse(&token).map(Some)
}

/// Read the text of a token's file.
///
/// # Errors
/// A sentence that says what helps.
pub fn parse(text: &str) -> Result<String, String> {
    let token = text.trim();
    if token.len() < 32 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("this is no token; delete the file to get a new one".to_owned());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn servers_that_start_at_once_get_one_token_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let tokens: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| make_or_read(dir.path()).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0] && token.len() == 64), "{tokens:?}");
        let mode = fs::metadata(path_of(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("server")).unwrap().count(), 1);
        assert_eq!(make_or_read(dir.path()).unwrap(), tokens[0]);
    }

    #[test]
    fn a_token_that_others_may_read_or_that_is_none_is_refused_with_what_helps() {
        let dir = tempfile::tempdir().unwrap();
        make_or_read(dir.path()).unwrap();
        let path = path_of(dir.path());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = make_or_read(dir.path()).unwrap_err();
        assert!(refused.contains("chmod 600") && refused.contains("token"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(make_or_read(dir.path()).unwrap_err().contains("delete the file"));
    }
}
