//! Kinds of a sign-in.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignInMethod {
    /// A browser of this machine, which returns to a loopback address.
    Browser,
    /// A browser on any device, in which the user enters a code.
    Device,
}

impl SignInMethod {
    /// The method that fits this machine: over SSH, the browser is on another machine.
    pub fn of_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let remote = set("SSH_CONNECTION") || set("SSH_TTY");
        if remote && !set("BROWSER") { Self::Device } else { Self::Browser }
    }
}
