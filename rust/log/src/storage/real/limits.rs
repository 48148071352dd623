//! How many unused maps this process may keep.
//!
//! Owns reading the limits of the process and of the system. If a limit cannot be read, the usual
//! one counts.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// Maps that Linux allows a process unless `vm.max_map_count` is changed.
const USUAL_MAPS: u64 = 65_530;
/// Most maps kept.
const MOST: u64 = 1024;
/// Least.
const LEAST: u64 = 4;

/// The limits of this process.
#[derive(Clone, Copy, Debug)]
struct Limits {
    descriptors: u64,
    maps: u64,
    address_space: u64,
}

/// Return how many unused maps of this size this process may keep open, all logs together. It
/// allows half of the descriptors, a sixteenth of the maps and a quarter of the address space of
/// the process. The rest is for the program. Limits are read once.
pub fn spare_maps(len: u64) -> usize {
    static LIMITS: OnceLock<Limits> = OnceLock::new();
    LIMITS.get_or_init(Limits::read).spare(len)
}

impl Limits {
    fn read() -> Self {
        let soft = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
        let maps = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        Self {
            descriptors: soft(Resource::Nofile),
            maps: maps.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_MAPS),
            address_space: soft(Resource::As),
        }
    }

    fn spare(self, len: u64) -> usize {
        let of_address_space = match self.address_space {
            u64::MAX => MOST,
            bytes => bytes / 4 / len.max(1),
        };
        let most = MOST.min(self.descriptors / 2).min(self.maps / 16).min(of_address_space);
        most.max(LEAST) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_are_kept_leave_most_of_each_limit_to_the_process() {
        const MIB: u64 = 1 << 20;
        let usual = Limits { descriptors: 1024, maps: USUAL_MAPS, address_space: u64::MAX };
        assert_eq!(usual.spare(64 * MIB), 512, "half of the descriptors");
        let many = Limits { descriptors: 1 << 20, ..usual };
        assert_eq!(many.spare(64 * MIB), 1024, "and no more than is of use");
        assert_eq!(Limits { maps: 3200, ..many }.spare(64 * MIB), 200, "a sixteenth of the maps");
        let narrow = Limits { address_space: 4096 * MIB, ..many };
        assert_eq!(narrow.spare(64 * MIB), 16, "a quarter of the address space");
        let least = Limits { descriptors: 3, maps: 1, address_space: MIB };
        assert_eq!(least.spare(64 * MIB), 4, "and always a few");
    }
}
