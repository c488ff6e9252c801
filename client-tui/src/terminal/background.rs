//! The query of the terminal's background colour (OSC 11), and its answer among the keys of the user.
//!
//! Over a slow line the answer arrives late, and in pieces. crossterm reports it as keys: Alt-], the digits
//! and letters of the colour, and Alt-\ or Ctrl-G as its end. As keys, they would start actions.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Asks for the background colour. A terminal without support ignores the sequence.
pub(super) const QUERY: &str = "\x1b]11;?\x1b\\";

/// Maximum length of an answer. Longer sequences are dropped up to here.
const MAX_LENGTH: usize = 256;

/// Longest time between the first and the last character of an answer.
const LONGEST: Duration = Duration::from_secs(1);

/// Separates answers of the terminal from the keys of the user.
#[derive(Debug)]
pub(super) struct AnswerFilter {
    /// Whether an answer may still arrive.
    is_asked: bool,
    state: AnswerState,
}

#[derive(Debug, Default)]
enum AnswerState {
    #[default]
    Outside,
    /// The previous key was Esc, with which a divided answer begins.
    AfterEscape,
    /// The keys of an answer, or keys that look like its beginning.
    Beginning(Vec<KeyEvent>),
    /// Characters of an answer, and the time of its first one.
    Inside(String, Instant),
}

/// An event after filtering.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filtered {
    /// Keys of the user.
    Keys(Vec<KeyEvent>),
    /// The answer of the terminal. The value is `None` if it contains no colour.
    Background { is_light: Option<bool> },
}

impl AnswerFilter {
    /// `is_asked` says whether the terminal was asked. Otherwise all keys are those of the user.
    pub fn new(is_asked: bool) -> Self {
        Self { is_asked, state: AnswerState::Outside }
    }

    /// Processes a key that was read at this time.
    pub fn on_key(&mut self, key: KeyEvent, now: Instant) -> Filtered {
        let c = match key.code {
            KeyCode::Char(c) => Some(c),
            _ => None,
        };
        let has_alt = key.modifiers.contains(KeyModifiers::ALT);
        match std::mem::take(&mut self.state) {
            AnswerState::Outside | AnswerState::AfterEscape if !self.is_asked => {}
            AnswerState::Outside if c == Some(']') && has_alt => {
                self.state = AnswerState::Beginning(vec![key]);
                return Filtered::Keys(Vec::new());
            }
            AnswerState::Outside if key.code == KeyCode::Esc => self.state = AnswerState::AfterEscape,
            AnswerState::Outside => {}
            AnswerState::AfterEscape if c == Some(']') => {
                self.state = AnswerState::Beginning(vec![key]);
                return Filtered::Keys(Vec::new());
            }
            AnswerState::AfterEscape => {}
            AnswerState::Beginning(mut keys) => {
                keys.push(key);
                let is_plain = !has_alt && !key.modifiers.contains(KeyModifiers::CONTROL);
                match c.filter(|_| is_plain) {
                    Some('0'..='9') if keys.len() <= 4 => self.state = AnswerState::Beginning(keys),
                    Some(';') if keys.len() > 2 => self.state = AnswerState::Inside(String::new(), now),
                    _ => return Filtered::Keys(keys),
                }
                return Filtered::Keys(Vec::new());
            }
            // An answer without an end is dropped. What is not a character of an answer is a key of the user.
            AnswerState::Inside(_, since) if now - since > LONGEST => {}
            AnswerState::Inside(..) if !is_of_answer(key) => {}
            AnswerState::Inside(mut text, since) => {
                let ends = match c {
                    Some('g') => key.modifiers.contains(KeyModifiers::CONTROL),
                    Some('\\') => true,
                    _ => false,
                };
                if ends || text.len() >= MAX_LENGTH {
                    return Filtered::Background { is_light: is_light(&text) };
                }
                // The Esc of a divided end.
                text.extend(c);
                self.state = AnswerState::Inside(text, since);
                return Filtered::Keys(Vec::new());
            }
        }
        Filtered::Keys(vec![key])
    }

    /// Returns the keys that only looked like the beginning of an answer: for a while, no key followed.
    pub fn on_pause(&mut self) -> Vec<KeyEvent> {
        match std::mem::take(&mut self.state) {
            AnswerState::Beginning(keys) if keys.len() == 1 => keys,
            // An answer is cut by a pause of the line.
            other @ (AnswerState::Beginning(_) | AnswerState::Inside(..)) => {
                self.state = other;
                Vec::new()
            }
            AnswerState::Outside | AnswerState::AfterEscape => Vec::new(),
        }
    }
}

/// Returns whether a key is a character of an answer, or belongs to its end.
fn is_of_answer(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Esc | KeyCode::Char('g' | '\\') => true,
        KeyCode::Char(c) => {
            key.modifiers.is_empty() && (c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | ';' | '#'))
        }
        _ => false,
    }
}

/// Returns whether a colour such as `rgb:ffff/ffff/ffff` is nearer to white than to black.
fn is_light(reply: &str) -> Option<bool> {
    let channels = reply.strip_prefix("rgb:").or_else(|| reply.strip_prefix("rgba:"))?;
    let mut parts = channels.split('/').map(|part| {
        let max = 16_f64.powi(i32::try_from(part.len()).ok()?) - 1.0;
        Some(f64::from(u32::from_str_radix(part, 16).ok()?) / max)
    });
    let mut next = || parts.next().flatten();
    let (red, green, blue) = (next()?, next()?, next()?);
    // Relative luminance of ITU-R BT.709 without its gamma, which does not move the middle.
    Some(0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(c: char, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), modifiers)
    }

    /// The keys as which crossterm reports an answer.
    fn answer(text: &str, end: KeyEvent) -> Vec<KeyEvent> {
        let start = key(']', KeyModifiers::ALT);
        let plain = text.chars().map(|c| key(c, KeyModifiers::NONE));
        std::iter::once(start).chain(plain).chain([end]).collect()
    }

    fn asked() -> AnswerFilter {
        AnswerFilter::new(true)
    }

    fn pass(filter: &mut AnswerFilter, keys: Vec<KeyEvent>) -> (Vec<KeyEvent>, Option<bool>) {
        let (mut passed, mut background) = (Vec::new(), None);
        for key in keys {
            match filter.on_key(key, Instant::now()) {
                Filtered::Keys(keys) => passed.extend(keys),
                Filtered::Background { is_light } => background = is_light,
            }
        }
        (passed, background)
    }

    #[test]
    fn an_answer_is_no_key() {
        let ends = [key('\\', KeyModifiers::ALT), key('g', KeyModifiers::CONTROL)];
        for end in ends {
            for (text, expected) in [
                ("11;rgb:ffff/ffff/ffff", Some(true)),
                ("11;rgb:00/2b/36", Some(false)),
                ("11;rgb:f/f/e", Some(true)),
                ("11;rgba:1111/1111/1111/ffff", Some(false)),
                ("11;brown", None),
            ] {
                assert_eq!(pass(&mut asked(), answer(text, end)), (Vec::new(), expected), "{text}");
            }
        }
    }

    #[test]
    fn a_divided_answer_is_no_key() {
        let mut keys = vec![KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)];
        keys.extend("]11;rgb:0/0/0".chars().map(|c| key(c, KeyModifiers::NONE)));
        keys.push(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        keys.push(key('\\', KeyModifiers::NONE));
        let (passed, background) = pass(&mut asked(), keys);
        assert_eq!((passed.len(), background), (1, Some(false)), "only the first Esc is a key");
    }

    #[test]
    fn keys_of_the_user_pass() {
        let mut filter = asked();
        assert_eq!(filter.on_key(key(']', KeyModifiers::ALT), Instant::now()), Filtered::Keys(Vec::new()));
        assert_eq!(filter.on_pause(), [key(']', KeyModifiers::ALT)]);
        let typed = vec![key(']', KeyModifiers::ALT), key('x', KeyModifiers::NONE)];
        assert_eq!(pass(&mut filter, typed.clone()).0, typed);
        let brackets: Vec<_> = "]11;x".chars().map(|c| key(c, KeyModifiers::NONE)).collect();
        assert_eq!(pass(&mut filter, brackets.clone()).0, brackets, "no Esc precedes");
        let all = answer("11;rgb:0/0/0", key('g', KeyModifiers::CONTROL));
        assert_eq!(pass(&mut AnswerFilter::new(false), all.clone()).0, all, "nothing was asked");
    }

    #[test]
    fn an_answer_without_an_end_swallows_no_further_keys() {
        let start = || answer("11;rgb:ffff/ff", key('f', KeyModifiers::NONE));
        let interrupt = key('c', KeyModifiers::CONTROL);
        let mut filter = asked();
        let typed = [interrupt, key('q', KeyModifiers::NONE)];
        let keys = start().into_iter().chain(typed).collect();
        assert_eq!(pass(&mut filter, keys).0, typed, "Ctrl-C is not a character of a colour");
        let mut filter = asked();
        assert_eq!(pass(&mut filter, start()).0, []);
        let (quit, later) = (key('q', KeyModifiers::NONE), Instant::now() + 2 * LONGEST);
        assert_eq!(filter.on_key(quit, later), Filtered::Keys(vec![quit]));
    }

    proptest! {
        /// Whatever arrives around an answer, its characters are never keys.
        #[test]
        fn answers_between_keys_are_dropped(before in "[a-z0-9;]{0,9}", after in "[a-z0-9;]{0,9}") {
            let mut keys: Vec<_> = before.chars().map(|c| key(c, KeyModifiers::NONE)).collect();
            keys.extend(answer("11;rgb:ffff/ffff/ffff", key('\\', KeyModifiers::ALT)));
            keys.extend(after.chars().map(|c| key(c, KeyModifiers::NONE)));
            let (passed, background) = pass(&mut asked(), keys);
            let text: String = passed.iter().filter_map(|key| key.code.as_char()).collect();
            prop_assert_eq!((text, background), (format!("{before}{after}"), Some(true)));
        }
    }
}
