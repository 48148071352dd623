//! Permissions: tokens, principals, grants, and the requests of browsers that are refused.
//!
//! ```text
//! request --browser: Host, Origin--> --token: which principal--> --grants: may it?--> handler
//! ```
//!
//! Loopback is not private: every local user reaches it, and every web page that a local user opens. So each door asks
//! for a token, except where `open` lifts that. Owns all secrets; none of them is logged or part of an address.

mod browser;
mod grants;
mod principals;
mod token;

pub use browser::Browser;
pub use grants::{Action, Grant, Kind};
pub use principals::{Principal, Principals};
pub use token::{
    Digest, digest, make_or_read, mint, parse as parse_token, path_of as token_path,
    read_of as read_token,
};

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no token, or one that no principal has.
    Unauthenticated,
    /// Its principal has no grant for this.
    Forbidden(String),
}

/// Decides which requests are let in. It can be replaced as a whole while requests are in flight.
#[derive(Debug)]
pub struct Access {
    open: bool,
    local: Option<Principal>,
    principals: Principals,
}

impl Access {
    /// Build from what the configuration says.
    ///
    /// With `open` a request without a token counts as the local principal, which may do everything. `local` is the digest
    /// of the store's own token; it is `None` where an address beyond loopback is served.
    pub fn new(open: bool, local: Option<Digest>, principals: Principals) -> Self {
        Self { open, local: local.map(Principal::local), principals }
    }

    /// True if no request can have a principal.
    pub fn admits_none(&self) -> bool {
        !self.open && self.local.is_none() && self.principals.is_empty()
    }

    /// Find the principal of a request by its bearer token.
    ///
    /// # Errors
    /// `Unauthenticated`.
    pub fn authenticate(&self, bearer: Option<&str>) -> Result<Principal, Refusal> {
        let Some(bearer) = bearer else {
            return if self.open { Ok(Principal::open()) } else { Err(Refusal::Unauthenticated) };
        };
        let digest = token::digest(bearer);
        // Each candidate is compared, whatever the one before it gave: time says nothing about which matched.
        let candidates = self.local.iter().chain(self.principals.iter());
        let found =
            candidates.fold(None, |found, one| if one.has(&digest) { Some(one) } else { found });
        found.cloned().ok_or(Refusal::Unauthenticated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Principals {
        Principals::parse(text).unwrap()
    }

    #[test]
    fn without_a_token_only_an_open_server_lets_a_request_in() {
        let closed = Access::new(false, Some(digest("secret")), Principals::default());
        assert_eq!(closed.authenticate(None).unwrap_err(), Refusal::Unauthenticated);
        assert_eq!(closed.authenticate(Some("")).unwrap_err(), Refusal::Unauthenticated);
        assert_eq!(closed.authenticate(Some("secreT")).unwrap_err(), Refusal::Unauthenticated);
        let local = closed.authenticate(Some("secret")).unwrap();
        assert!(local.may(Action::Admin, Kind::Topic, "orders").is_ok());
        let open = Access::new(true, Some(digest("secret")), Principals::default());
        assert!(
            open.authenticate(None).unwrap().may(Action::Delete, Kind::Topic, "orders").is_ok()
        );
        // A wrong token is a mistake worth hearing of.
        assert_eq!(open.authenticate(Some("wrong")).unwrap_err(), Refusal::Unauthenticated);
    }

    #[test]
    fn a_principal_does_what_its_grants_allow_and_nothing_else() {
        let text = format!(
            "[[principal]]\nname = \"ingest\"\ntokens = [\"{}\"]\n[[principal.grants]]\ntopic = \"orders*\"\n\
             allow = [\"append\", \"create\"]\n[[principal.grants]]\ngroup = \"billing\"\nallow = [\"read\"]\n",
            hex(&digest("t1"))
        );
        let access = Access::new(false, None, named(&text));
        let ingest = access.authenticate(Some("t1")).unwrap();
        assert!(ingest.may(Action::Append, Kind::Topic, "orders-eu").is_ok());
        assert!(ingest.may(Action::Create, Kind::Topic, "orders").is_ok());
        assert!(ingest.may(Action::Read, Kind::Group, "billing").is_ok());
        for (action, kind, name) in [
            (Action::Read, Kind::Topic, "orders"),
            (Action::Append, Kind::Topic, "order"),
            (Action::Append, Kind::Topic, "my-orders"),
            (Action::Read, Kind::Group, "billing-2"),
            (Action::Append, Kind::Group, "orders"),
            (Action::Admin, Kind::Topic, "orders"),
        ] {
            let Err(Refusal::Forbidden(why)) = ingest.may(action, kind, name) else {
                panic!("{action:?} {name}")
            };
            assert!(why.contains("ingest") && why.contains(name), "{why}");
        }
        assert_eq!(access.authenticate(Some("t2")).unwrap_err(), Refusal::Unauthenticated);
    }

    #[test]
    fn a_grant_of_the_place_is_none_of_topics_and_the_other_way_round() {
        let text = |grant: &str| {
            format!(
                "[[principal]]\nname = \"p\"\ntokens = [\"{}\"]\n[[principal.grants]]\n{grant}\n\
                 allow = [\"read\", \"create\", \"delete\"]\n",
                hex(&digest("t1"))
            )
        };
        let of = |grant: &str| {
            Access::new(false, None, named(&text(grant))).authenticate(Some("t1")).unwrap()
        };
        let shipper = of("place = \"shop/*\"");
        for action in [Action::Read, Action::Create, Action::Delete] {
            assert!(shipper.may(action, Kind::Object, "shop/n/1").is_ok());
            assert!(shipper.may(action, Kind::Object, "shopping/n/1").is_err());
            assert!(shipper.may(action, Kind::Topic, "shop/n/1").is_err());
            assert!(shipper.may(action, Kind::Group, "shop/n/1").is_err());
            assert!(of("topic = \"*\"\ngroup = \"*\"").may(action, Kind::Object, "a").is_err());
        }
    }

    fn hex(digest: &Digest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
