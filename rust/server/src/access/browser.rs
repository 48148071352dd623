//! Refuses requests that a browser sends on behalf of a web page that has no business here.
//!
//! Two attacks need no token of the victim's machine to be known. A page whose DNS name is pointed at 127.0.0.1 sends
//! requests with its own name in `Host`; a page of another origin sends writes with its name in `Origin`. Both are
//! refused before anything else is looked at. Programs send neither header wrongly, so they need nothing extra.

use std::net::IpAddr;

/// The names and origins that requests may come with.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    hosts: Vec<String>,
    origins: Vec<String>,
    any_address: bool,
}

impl Browser {
    /// Allow the loopback names, these names, and pages of these origins. Where an address beyond loopback is served,
    /// `any_address` allows addresses in `Host`: a rebound DNS name is a name, never an address.
    pub fn new(hosts: &[String], origins: &[String], any_address: bool) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { hosts: lower(hosts), origins: lower(origins), any_address }
    }

    /// True if a request with this `Host` (or HTTP/2 authority) may come in.
    pub fn allows_host(&self, host: Option<&str>) -> bool {
        // HTTP/1.0 has no Host; browsers always send one.
        let Some(host) = host else { return true };
        let name = name_of(host).to_ascii_lowercase();
        if name == "localhost" || self.hosts.contains(&name) {
            return true;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => self.any_address || address.is_loopback(),
            Err(_) => false,
        }
    }

    /// True if a write with these headers may come in; `host` has passed already.
    pub fn allows_write(
        &self,
        host: Option<&str>,
        origin: Option<&str>,
        fetch_site: Option<&str>,
    ) -> bool {
        match origin {
            Some(origin) => self.knows_origin(origin) || is_same(origin, host),
            // A page's own requests and what a user types; all else has an Origin in every browser that matters.
            None => matches!(fetch_site, None | Some("same-origin" | "none")),
        }
    }

    /// True if pages of this origin may read answers.
    pub fn knows_origin(&self, origin: &str) -> bool {
        self.origins.contains(&origin.to_ascii_lowercase())
    }
}

/// The host without its port, and without the brackets of IPv6.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_same(origin: &str, host: Option<&str>) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| host.is_some_and(|host| rest.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_and_configured_ones_are_hosts() {
        let browser = Browser::new(&["events.example".to_owned()], &[], false);
        for host in [
            "127.0.0.1:4437",
            "127.0.0.1",
            "localhost:1",
            "LOCALHOST",
            "[::1]:4437",
            "events.example:443",
            "Events.Example",
        ] {
            assert!(browser.allows_host(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:4437",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "",
            ":80",
            "[::2]",
        ] {
            assert!(!browser.allows_host(Some(host)), "{host}");
        }
        let outside = Browser::new(&[], &[], true);
        assert!(
            outside.allows_host(Some("10.0.0.1:4437"))
                && !outside.allows_host(Some("evil.example"))
        );
    }

    #[test]
    fn a_write_of_a_foreign_page_is_refused_and_a_programs_is_not() {
        let browser = Browser::new(&[], &["https://app.example".to_owned()], false);
        let host = Some("127.0.0.1:4437");
        assert!(browser.allows_write(host, None, None));
        assert!(browser.allows_write(host, None, Some("none")));
        assert!(browser.allows_write(host, Some("http://127.0.0.1:4437"), Some("same-origin")));
        assert!(browser.allows_write(host, Some("https://APP.example"), Some("cross-site")));
        for (origin, site) in [
            (Some("https://evil.example"), Some("cross-site")),
            (Some("https://evil.example"), None),
            (Some("null"), None),
            (Some("http://127.0.0.1:9999"), Some("same-site")),
            (Some("http://127.0.0.1"), None),
            (None, Some("cross-site")),
            (None, Some("same-site")),
        ] {
            assert!(!browser.allows_write(host, origin, site), "{origin:?} {site:?}");
        }
    }
}
