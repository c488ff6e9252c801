//! Completion scripts and man pages of a program.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

/// Prints the completion script of a program.
///
/// # Errors
/// The error of the operating system if standard output cannot be written.
pub fn print_completions<P: CommandFactory>(shell: Shell) -> io::Result<()> {
    let mut command = P::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    io::stdout().write_all(&script)
}

/// Writes a man page for a program and for each of its commands to a folder, which is created.
///
/// # Errors
/// The error of the operating system if a page cannot be written.
pub fn write_man_pages<P: CommandFactory>(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(P::command(), folder)
}
