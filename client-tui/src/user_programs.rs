//! The editor and the pager of the user.

use std::path::Path;
use std::process::Command;

use crate::output::printable;

/// Programs that the screens start. They have the terminal for themselves meanwhile.
pub trait UserPrograms {
    /// Opens a text in the editor and returns the edited text.
    ///
    /// # Errors
    /// A message for the user if the editor cannot be started, or if it failed.
    fn edit(&mut self, text: &str) -> Result<String, String>;

    /// Shows a text in the pager.
    ///
    /// # Errors
    /// A message for the user if the pager cannot be started, or if it failed.
    fn page(&mut self, text: &str) -> Result<(), String>;
}

/// The command of the editor: `$VISUAL`, `$EDITOR` or `vi`.
pub(crate) fn editor_of_user() -> String {
    variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".to_owned())
}

/// The command of the pager: `$PAGER` or `less`.
pub(crate) fn pager_of_user() -> String {
    variable("PAGER").unwrap_or_else(|| "less".to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Runs an editor on a private temporary file, and returns its content.
pub(crate) fn edit(editor: &str, text: &str) -> Result<String, String> {
    with_file("request.http", text, |path| {
        run(editor, "editor", "EDITOR", path)?;
        std::fs::read_to_string(path).map_err(|error| format!("failed to read {}: {error}", path.display()))
    })
}

/// Runs a pager on a private temporary file, without characters that a terminal executes.
pub(crate) fn page(pager: &str, text: &str) -> Result<(), String> {
    with_file("body.json", &printable(text), |path| run(pager, "pager", "PAGER", path))
}

/// Calls a function with a file in a folder that only the user may read. The folder is removed afterwards.
fn with_file<T>(name: &str, text: &str, f: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let path = folder.path().join(name);
    std::fs::write(&path, text).map_err(|error| format!("failed to write {}: {error}", path.display()))?;
    f(&path)
}

/// Runs a command on a file. The command may contain options, such as `code --wait`.
fn run(command: &str, kind: &str, variable: &str, path: &Path) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().unwrap_or_default());
    program.args(words).arg(path);
    if kind == "pager" {
        // `less` must not end by itself (-F), because the screens would cover the text at once.
        let options = std::env::var("LESS").unwrap_or_default();
        program.env("LESS", format!("{options} -+F"));
    }
    let status = program
        .status()
        .map_err(|error| format!("the {kind} '{command}' cannot be started: {error}; set {variable}"))?;
    if status.success() { Ok(()) } else { Err(format!("the {kind} '{command}' failed: {status}")) }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// The command of a shell script.
    fn script(folder: &Path, content: &str) -> String {
        let path = folder.join("program.sh");
        std::fs::write(&path, content).expect("the folder exists");
        format!("sh {}", path.display())
    }

    #[test]
    fn an_editor_changes_the_text() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(edit(&script(folder.path(), "echo b >> $1"), "a\n").unwrap(), "a\nb\n");
        assert!(edit(&script(folder.path(), "exit 3"), "a").unwrap_err().contains("failed: exit status: 3"));
        assert!(edit("no-such-editor", "a").unwrap_err().contains("set EDITOR"));
    }

    #[test]
    fn a_pager_gets_printable_text_and_does_not_end_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("seen");
        let pager = script(folder.path(), &format!("(cat $1; echo $LESS) > {}", seen.display()));
        page(&pager, "a\u{1b}[2J\u{9b}b\n").unwrap();
        let seen = std::fs::read_to_string(seen).unwrap();
        assert!(seen.starts_with("a\u{fffd}[2J\u{fffd}b\n") && seen.ends_with("-+F\n"), "{seen}");
        assert!(page("no-such-pager", "a").unwrap_err().contains("set PAGER"));
    }
}
