//! Parses the output of `strace -f -xx`: system calls with their arguments, in the order in which they took
//! effect. Also writes calls in this format, which make the content of a folder.

use std::fmt::Write as _;
use std::path::Path;

use crate::disk::{DiskImage, Node};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub name: String,
    pub arguments: Vec<String>,
    pub result: i64,
    /// `true` at the start of a call, before its effect; `false` at its end.
    pub is_start: bool,
    pub thread: u32,
}

impl SystemCall {
    /// An argument as a number, for example a descriptor.
    pub fn number(&self, index: usize) -> Option<i64> {
        self.arguments.get(index)?.parse().ok()
    }

    /// The texts in an argument, concatenated.
    pub fn bytes(&self, index: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some(argument) = self.arguments.get(index) else { return bytes };
        for text in argument.split('"').skip(1).step_by(2) {
            let digits = text.as_bytes();
            // Each byte has the form `\x2f`.
            bytes.reserve(digits.len() / 4);
            bytes.extend(digits.chunks_exact(4).map(|byte| (digit(byte[2]) << 4) | digit(byte[3])));
        }
        bytes
    }

    pub fn text(&self, index: usize) -> String {
        String::from_utf8_lossy(&self.bytes(index)).into_owned()
    }

    /// `true` if an argument contains a flag.
    pub fn has(&self, index: usize, flag: &str) -> bool {
        self.arguments.get(index).is_some_and(|flags| flags.split('|').any(|one| one == flag))
    }
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => 0,
    }
}

/// Parses a trace. Each call is reported twice, at its start and at its end. Calls that fail are not reported
/// at their end.
///
/// # Errors
/// The line that cannot be parsed.
pub(crate) fn parse(
    trace: &str,
    mut call: impl FnMut(SystemCall) -> Result<(), String>,
) -> Result<(), String> {
    let mut unfinished: Vec<(u32, &str)> = Vec::new();
    for line in trace.lines() {
        let bad = || format!("unexpected line of strace: {}", &line[..line.len().min(200)]);
        let (thread, rest) = line.split_once(' ').ok_or_else(bad)?;
        let thread: u32 = thread.parse().map_err(|_| bad())?;
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        if let Some(beginning) = rest.strip_suffix(" <unfinished ...>") {
            let (name, arguments) = beginning.split_once('(').ok_or_else(bad)?;
            call(start(thread, name, arguments))?;
            unfinished.push((thread, beginning));
            continue;
        }
        let (name, arguments, result) = if let Some(resumed) = rest.strip_prefix("<... ") {
            let index = unfinished.iter().position(|(of, _)| *of == thread).ok_or_else(bad)?;
            let (_, begun) = unfinished.swap_remove(index);
            let (name, first) = begun.split_once('(').ok_or_else(bad)?;
            let (_, last) = resumed.split_once(" resumed>").ok_or_else(bad)?;
            let (last, result) = last.rsplit_once(" = ").ok_or_else(bad)?;
            (name, format!("{first}{}", last.trim_end().strip_suffix(')').ok_or_else(bad)?), result)
        } else {
            let (head, result) = rest.rsplit_once(" = ").ok_or_else(bad)?;
            let (name, arguments) = head.split_once('(').ok_or_else(bad)?;
            call(start(thread, name, arguments))?;
            (name, arguments.trim_end().strip_suffix(')').ok_or_else(bad)?.to_owned(), result)
        };
        let number = result.split(' ').next().unwrap_or_default();
        // A process that ends during a call has the result `?`. An address is reported as 0.
        let number = if number.starts_with("0x") { Some(0) } else { number.parse().ok() };
        let Some(result) = number.filter(|&result: &i64| result >= 0) else { continue };
        call(SystemCall {
            name: name.to_owned(),
            arguments: split(&arguments),
            result,
            is_start: false,
            thread,
        })?;
    }
    Ok(())
}

fn start(thread: u32, name: &str, arguments: &str) -> SystemCall {
    // Only the first argument is needed at the start of a call.
    let first = arguments.split([',', ')']).next().unwrap_or_default().trim().to_owned();
    SystemCall { name: name.to_owned(), arguments: vec![first], result: 0, is_start: true, thread }
}

/// Splits the arguments of a call at the commas outside of texts and brackets.
fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut depth, mut from, mut index) = (Vec::new(), 0, 0, 0);
    let bytes = arguments.as_bytes();
    while index < bytes.len() {
        match bytes[index] {
            b'"' => index += 1 + arguments[index + 1..].find('"').unwrap_or(0),
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(arguments[from..index].trim().to_owned());
                from = index + 1;
            }
            _ => {}
        }
        index += 1;
    }
    parts.push(arguments[from..].trim().to_owned());
    parts
}

/// Returns calls that make the content of a folder durable, and write marks to a file next to it.
pub(crate) fn calls_that_make(image: &DiskImage, root: &Path, file_of_marks: &str, marks: &[&str]) -> String {
    let (mut calls, mut folders) = (String::new(), Vec::new());
    let mut call = |text: String| writeln!(calls, "1 {text}").expect("writing to a text does not fail");
    image
        .walk(&mut |path, node| {
            let path = text(root.join(path).display().to_string().trim_end_matches('/').as_bytes());
            match node {
                Node::Folder(_) => {
                    if !folders.is_empty() {
                        call(format!("mkdir({path}, 0777) = 0"));
                    }
                    folders.push(path);
                }
                Node::File(content) => {
                    call(format!("open({path}, O_WRONLY|O_CREAT, 0666) = 3"));
                    let bytes = content.without_zeros();
                    call(format!("write(3, {}, {length}) = {length}", text(bytes), length = bytes.len()));
                    call(format!("ftruncate(3, {}) = 0", content.length()));
                    call("fsync(3) = 0".to_owned());
                }
            }
            Ok(())
        })
        .expect("writing to a text does not fail");
    for folder in folders {
        call(format!("open({folder}, O_RDONLY) = 3"));
        call("fsync(3) = 0".to_owned());
    }
    for mark in marks {
        let path = root.with_file_name(file_of_marks).display().to_string();
        call(format!("open({}, O_WRONLY|O_CREAT|O_APPEND, 0666) = 3", text(path.as_bytes())));
        call(format!("write(3, {}, {length}) = {length}", text(mark.as_bytes()), length = mark.len()));
    }
    calls
}

/// A text in quotes with each byte in hexadecimal digits.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(4 * bytes.len() + 2);
    text.push('"');
    for byte in bytes {
        write!(text, "\\x{byte:02x}").expect("writing to a text does not fail");
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_several_threads_are_joined() {
        let trace = "7 write(3, \"\\x61\\x2c\\x62\", 3) = 3\n\
            7 fsync(3 <unfinished ...>\n\
            8 openat(AT_FDCWD, \"\\x2f\\x61\", O_WRONLY|O_CREAT, 0666) = 4\n\
            8 unlink(\"\\x61\") = -1 ENOENT (No such file or directory)\n\
            7 <... fsync resumed>)              = 0\n\
            8 writev(4, [{iov_base=\"\\x61\", iov_len=1}, {iov_base=\"\\x62\", iov_len=1}], 2) = 2\n\
            8 +++ exited with 0 +++\n";
        let mut calls = Vec::new();
        parse(trace, |call| {
            calls.push((call.name.clone(), call.is_start, call.bytes(1), call.result));
            Ok(())
        })
        .expect("the trace is valid");
        let ends: Vec<_> = calls.iter().filter(|(_, is_start, ..)| !is_start).collect();
        let names: Vec<_> = ends.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["write", "openat", "fsync", "writev"]);
        assert_eq!((ends[0].2.as_slice(), ends[3].2.as_slice()), (&b"a,b"[..], &b"ab"[..]));
        assert_eq!(calls[2], ("fsync".to_owned(), true, vec![], 0));
    }

    #[test]
    fn a_line_that_is_not_a_call_is_an_error() {
        assert!(parse("strace: cannot attach\n", |_| Ok(())).is_err());
    }
}
