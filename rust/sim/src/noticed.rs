//! Whether a test of the engine noticed a planted bug, judged by its words.
//!
//! A failure is not enough: a busy machine or a broken build can cause that too. The output must
//! name what the bug does.

/// Return the words by which a test noticed a bug; `None` if it passed.
pub fn noticed(says: &str, said: &str) -> Result<Option<String>, String> {
    if said.contains("test result: ok. 1 passed") {
        return Ok(None);
    }
    let line = said.lines().find(|line| line.contains(says));
    match line.filter(|_| said.contains("test result: FAILED. 0 passed; 1 failed")) {
        Some(line) => Ok(Some(line.trim().into())),
        None => Err(format!("it neither passed nor noticed that \"{says}\":\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_for_another_reason_has_noticed_nothing() {
        let failed =
            "panicked at a.rs:\n  it goes on at 7\ntest result: FAILED. 0 passed; 1 failed;";
        assert_eq!(noticed("it goes on at", failed), Ok(Some("it goes on at 7".into())));
        assert_eq!(noticed("it goes on at", "test result: ok. 1 passed;"), Ok(None));
        let late = failed.replace("it goes on at 7", "still alive");
        for said in [&late[..], "it goes on at 7: error: could not compile", ""] {
            assert!(noticed("it goes on at", said).is_err(), "{said}");
        }
    }
}
