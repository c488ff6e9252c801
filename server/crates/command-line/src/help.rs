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

/// A section of a man page: a title, and names with their meanings.
pub type ManSection<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// Writes a man page for a program and for each of its commands to a folder, which is created. The page of
/// the program gets further sections, such as `ENVIRONMENT`.
///
/// # Errors
/// The error of the operating system if a page cannot be written.
pub fn write_man_pages<P: CommandFactory>(folder: &Path, sections: &[ManSection<'_>]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let command = P::command();
    let page = folder.join(format!("{}.1", command.get_name()));
    clap_mangen::generate_to(command, folder)?;
    let mut page = std::fs::File::options().append(true).open(page)?;
    for (title, entries) in sections {
        writeln!(page, ".SH {title}")?;
        for (name, meaning) in *entries {
            writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(name), roff(meaning))?;
        }
    }
    Ok(())
}

/// A text in roff, in which a backslash begins a command and a hyphen may be printed as another character.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}
