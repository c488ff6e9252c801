//! The platforms of a release, with the names that each kind of package has for them.

use anyhow::{Context as _, Result};

/// A platform for which programs are built.
pub(super) struct Platform {
    /// The target of Rust whose programs are static: they need no library of the system.
    pub target: &'static str,
    /// Name in archives, as `uname -m` prints it.
    pub machine: &'static str,
    /// Name in Debian packages and in images (GOARCH).
    pub debian: &'static str,
    /// `process.arch` of Node.
    pub node: &'static str,
}

pub(super) const PLATFORMS: [Platform; 2] = [
    Platform { target: "x86_64-unknown-linux-musl", machine: "x86_64", debian: "amd64", node: "x64" },
    Platform { target: "aarch64-unknown-linux-musl", machine: "aarch64", debian: "arm64", node: "arm64" },
];

impl Platform {
    /// The platform of this machine.
    pub fn of_this_machine() -> Result<&'static Self> {
        let machine = std::env::consts::ARCH;
        let platform = PLATFORMS.iter().find(|platform| platform.machine == machine);
        platform.with_context(|| format!("no release is made for {machine}"))
    }

    /// The platforms of a wheel (PEP 600 and PEP 656).
    pub fn wheel_tag(&self, programs_are_static: bool) -> String {
        let machine = self.machine;
        match programs_are_static {
            true => format!("manylinux_2_17_{machine}.musllinux_1_1_{machine}"),
            // An index of packages refuses this tag: the programs need libraries of the machine that built
            // them.
            false => format!("linux_{machine}"),
        }
    }
}
