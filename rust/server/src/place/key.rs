//! The form of keys: as `check_key` and `check_prefix` of `falaj.ship.place` have it, in parts that can be file names.

/// Most bytes of a key, and of a part of it: file systems have no longer names.
pub const KEY_BYTES_MAX: usize = 512;
pub const PART_BYTES_MAX: usize = 255;

/// Check that a key is well formed: it never leads out of the place.
///
/// # Errors
/// A sentence.
pub fn check_key(key: &str) -> Result<(), String> {
    let is_part = |part: &str| part.len() <= PART_BYTES_MAX && is_name(part);
    if key.len() <= KEY_BYTES_MAX && key.split('/').all(is_part) {
        return Ok(());
    }
    Err(format!(
        "{:?} is no key of a place: letters, digits, '.', '_', '-', in parts between slashes that begin with no dot; \
         at most {KEY_BYTES_MAX} bytes, and {PART_BYTES_MAX} in a part",
        key.chars().take(80).collect::<String>()
    ))
}

/// Read a folder as what the keys in it begin with: `shop/`, or nothing for all.
///
/// # Errors
/// That of [`check_key`].
pub fn check_prefix(prefix: &str) -> Result<String, String> {
    let folder = prefix.strip_suffix('/').unwrap_or(prefix);
    if folder.is_empty() {
        return Ok(String::new());
    }
    check_key(folder)?;
    Ok(format!("{folder}/"))
}

/// True if text can be a part of a key, between slashes.
pub fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match text.as_bytes() {
        [first, rest @ ..] => {
            is_letter(*first) && rest.iter().all(|byte| is_letter(*byte) || *byte == b'.')
        }
        [] => false,
    }
}
