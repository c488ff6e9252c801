//! File descriptors of the process. The soft limit is raised to the hard one at start, and a part is reserved for files,
//! so that connections never keep the store, exports or logs from opening one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Largest reserve for files: store, exports and their downloads, saved indexes, logs, calls to other servers.
const LARGEST_RESERVE: u64 = 8_192;

/// How the descriptors of the process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// For connections.
    pub connections: usize,
    /// For export files that are being downloaded; the rest of the reserve is for everything else.
    pub downloads: usize,
}

impl DescriptorBudget {
    /// Divides `limit` descriptors.
    fn of(limit: u64) -> Self {
        let reserve = (limit / 2).min(LARGEST_RESERVE);
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
        Self { connections: count(limit - reserve), downloads: count(reserve / 3) }
    }
}

/// Raises the soft limit to the hard one and divides it. If the limit cannot be raised, the soft one is divided.
pub fn raise_limit() -> DescriptorBudget {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, ?current, "the soft limit of file descriptors cannot be raised");
        return DescriptorBudget::of(current.unwrap_or(u64::MAX));
    }
    DescriptorBudget::of(maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_half_for_files() {
        assert_eq!(DescriptorBudget::of(300), DescriptorBudget { connections: 150, downloads: 50 });
        assert_eq!(DescriptorBudget::of(1 << 20).downloads, 2_730);
        assert!(DescriptorBudget::of(1 << 20).connections > 1_000_000);
    }
}
