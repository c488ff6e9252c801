//! File descriptors of the process. The soft limit is raised to the hard one at the start. A part of the
//! descriptors is reserved for files, so that connections cannot use up those of the store, exports and logs.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Largest reserve for files: store, exports and their downloads, saved indexes, logs, calls to other
/// servers.
const LARGEST_RESERVE: u64 = 8_192;

/// The division of the descriptors of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// For connections.
    pub connections: usize,
    /// For export files that are being downloaded; the rest of the reserve is for other files.
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

/// The budget of this process. The first call raises the soft limit to the hard one.
pub fn descriptor_budget() -> DescriptorBudget {
    static BUDGET: OnceLock<DescriptorBudget> = OnceLock::new();
    *BUDGET.get_or_init(|| DescriptorBudget::of(raise_limit()))
}

/// Raises the soft limit to the hard one, and returns it. Returns the soft limit if that fails.
fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, ?current, "the soft limit of file descriptors cannot be raised");
        return current.unwrap_or(u64::MAX);
    }
    maximum.unwrap_or(u64::MAX)
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
