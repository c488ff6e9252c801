//! Opens a URL in the browser of the user.

use std::process::{Command, Stdio};

/// Opens the URL with `$BROWSER`, or with the command of the operating system.
///
/// Success means only that the command was started, so the caller shows the URL in any case.
///
/// # Errors
/// The error of the operating system if no command could be started.
pub fn open(url: &str) -> Result<(), String> {
    let programs = std::env::var("BROWSER").unwrap_or_default();
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut last = String::new();
    for command in programs.split(':').filter(|command| !command.is_empty()).chain([system]) {
        match start(command, url) {
            Ok(()) => return Ok(()),
            Err(error) => last = format!("'{command}' cannot be started: {error}"),
        }
    }
    Err(last)
}

/// Starts a command in which `%s` is replaced by the URL. The child process does not inherit the terminal.
fn start(command: &str, url: &str) -> std::io::Result<()> {
    let (program, arguments) = command_line(command, url);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Waits for the child process; otherwise it would remain a zombie until this process ends.
    std::thread::spawn(move || child.wait());
    Ok(())
}

fn command_line(command: &str, url: &str) -> (String, Vec<String>) {
    let mut words = command.split_whitespace().map(str::to_owned);
    let program = words.next().unwrap_or_default();
    let mut arguments: Vec<String> = words.map(|word| word.replace("%s", url)).collect();
    if !command.contains("%s") {
        arguments.push(url.to_owned());
    }
    (program, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &[&str]) {
        let (program, arguments) = command_line(command, "https://as.example/?a=b&c");
        let words: Vec<_> = std::iter::once(program).chain(arguments).collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn the_address_replaces_the_placeholder() {
        check("firefox", &["firefox", "https://as.example/?a=b&c"]);
        check("chromium --app=%s", &["chromium", "--app=https://as.example/?a=b&c"]);
        check("open -a Safari", &["open", "-a", "Safari", "https://as.example/?a=b&c"]);
    }
}
