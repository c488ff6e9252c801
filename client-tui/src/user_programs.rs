//! The editor and the pager of the user.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use command_line::text::printable;

/// Programs that the screens start. They have the terminal for themselves meanwhile.
pub trait UserPrograms {
    /// Opens a text in the editor. Returns the text that was written, or `None` if the user left the editor
    /// without writing.
    ///
    /// # Errors
    /// A message for the user if the editor cannot be started, or if it failed.
    fn edit(&mut self, text: &str) -> Result<Option<String>, String>;

    /// Shows a text in the pager.
    ///
    /// # Errors
    /// A message for the user if the pager cannot be started, or if it failed.
    fn page(&mut self, text: &str) -> Result<(), String>;

    /// Stops this program until the user continues it, as Ctrl-Z does in a shell.
    ///
    /// # Errors
    /// A message for the user if the terminal cannot be left or entered.
    fn suspend(&mut self) -> Result<(), String>;

    /// Takes over the terminal after another process has stopped and continued this program.
    ///
    /// # Errors
    /// A message for the user if the terminal cannot be entered.
    fn resume(&mut self) -> Result<(), String>;
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

/// Runs an editor on a private temporary file. Returns the content that it wrote, or `None` if it wrote none.
pub(crate) fn edit(editor: &str, text: &str) -> Result<Option<String>, String> {
    with_file("request.http", text, |path| {
        let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
        // With an old time, a write is recognized also within the resolution of the file system's clock.
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        File::options().write(true).open(path).and_then(|file| file.set_modified(old)).map_err(failed)?;
        run(editor, "editor", "EDITOR", path)?;
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).map_err(failed)?;
        Ok((modified != old).then_some(text))
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
        assert_eq!(edit(&script(folder.path(), "echo b >> $1"), "a\n").unwrap().as_deref(), Some("a\nb\n"));
        let same = script(folder.path(), "cp $1 $1.copy; cat $1.copy > $1");
        assert_eq!(edit(&same, "a\n").unwrap().as_deref(), Some("a\n"), "written without a change");
        assert_eq!(edit(&script(folder.path(), "cat $1"), "a\n").unwrap(), None, "nothing was written");
        assert!(edit(&script(folder.path(), "exit 3"), "a").unwrap_err().contains("failed: exit status: 3"));
        assert!(edit("no-such-editor", "a").unwrap_err().contains("set EDITOR"));
    }

    #[test]
    fn a_pager_gets_printable_text_and_does_not_end_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("seen");
        let pager = script(folder.path(), &format!("(cat $1; echo $LESS) > {}", copy.display()));
        page(&pager, "a\u{1b}[2J\u{9b}b\n").unwrap();
        let text = std::fs::read_to_string(copy).unwrap();
        assert!(text.starts_with("a\u{fffd}[2J\u{fffd}b\n") && text.ends_with("-+F\n"), "{text}");
        assert!(page("no-such-pager", "a").unwrap_err().contains("set PAGER"));
    }
}
