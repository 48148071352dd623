//! Feeds each parser of foreign bytes with its seeds and with mutations of them.

use falaj_server::foreign::TARGETS;

/// Mutations of each target. `MUTATIONS=1000000 cargo test --release` runs longer.
const MUTATIONS: u64 = 10_000;

/// Numbers that look random (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Bytes that parsers look at.
const TOKENS: &[&[u8]] = &[
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc3\x28",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"-",
    b"%00",
    b"%ff",
    b"&",
    b"=",
    b"0",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"null",
    b"value",
    b"value_base64",
    b"key",
    b"headers",
    b"tombstone",
    b"true",
    b"=",
    b"AAAA",
    b"\xf0\x9f\x92\xa5",
    b"[[principal]]",
    b"@",
];

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(9)).min(bytes.len());
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
        }
    }
}

#[test]
fn no_bytes_make_a_parser_panic_or_accept_what_it_must_not() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| (u64::from(std::process::id()) << 20) | 1);
    let rounds =
        std::env::var("MUTATIONS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(MUTATIONS);
    for target in TARGETS {
        let mut random = Random(seed);
        for bytes in target.seeds {
            (target.feed)(bytes);
        }
        for _ in 0..rounds {
            let mut bytes = target.seeds[random.below(target.seeds.len())].to_vec();
            mutate(&mut random, &mut bytes);
            let fed = std::panic::catch_unwind(|| (target.feed)(&bytes));
            assert!(
                fed.is_ok(),
                "SEED={seed}, target {}: {:?}",
                target.name,
                bytes.escape_ascii().to_string()
            );
        }
    }
}
