//! Lines of a type, read ahead of whoever writes them: at two places at a time, and given in their order.
//!
//! A type is cut into spans. The members of a Group are known, so each span is some of them. Of a whole type only a guess
//! can say where the next span begins, by how far the last one came; the one before then goes on until it is there.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use store::{Lines, Mark, Scan, Seen, Seq, Store, StoreError, Versions as _, Whole};
use tokio::sync::mpsc;

use crate::group::Members;
use crate::selection::{Cursor, PAGE};
use crate::task::Task;

/// Pages of a span that are read in one go.
const PAGES: usize = 4;
/// Spans that are read at the same time.
const SPANS: usize = 2;
/// Members of a span: about so many pages.
const MEMBERS: usize = 384;

/// What says of a resource that it is chosen, before its body is looked at.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// `None` is everybody and nobody.
    pub whose: Option<Arc<Members>>,
}

impl Wanted {
    fn has(&self, seen: &Seen<'_>) -> bool {
        let in_time = self.since.is_none_or(|since| seen.updated > since)
            && self.until.is_none_or(|until| seen.updated < until);
        in_time && self.whose.as_ref().is_none_or(|members| is_of(seen, members))
    }
}

/// Is it in the compartment of a member, and of none before the one that is being walked? Compartments are sorted as
/// members are.
fn is_of(seen: &Seen<'_>, members: &Members) -> bool {
    let mut compartments = seen.compartments().filter(|compartment| {
        seen.within == Some(compartment)
            || compartment.strip_prefix("Patient/").is_some_and(|id| members.position(id).is_some())
    });
    compartments.next().is_some_and(|first| seen.within.is_none_or(|within| within == first))
}

/// What is to be read.
pub(crate) struct Source<'a> {
    pub store: &'a Store,
    pub kind: &'a str,
    pub seq: Seq,
    pub wanted: Wanted,
    /// Those whose compartments are opened one by one, where that is the way.
    pub members: Option<&'a Members>,
}

/// The lines of a type from a place on.
pub(crate) struct Ahead<'a> {
    source: Source<'a>,
    /// Where the first span begins, until it does.
    from: Option<Cursor>,
    /// In their order; the first is the one that is given.
    spans: VecDeque<Span>,
}

/// Where a span ends.
#[derive(Clone)]
enum End {
    /// At the end of the type, or where the next span begins.
    Kind(Option<Mark>),
    /// Before this member.
    Member(usize),
}

/// A span as it is read.
struct Span {
    end: End,
    pages: mpsc::Receiver<Lines>,
    reading: Task<Result<(), StoreError>>,
    /// Pages that may still come.
    left: usize,
    /// Those that came and were not given yet.
    ready: VecDeque<Lines>,
    /// Behind the last of them.
    at: Cursor,
    /// Of the first full page and of the last one.
    marks: Option<(Mark, Mark)>,
    /// Is all of it read, or what is left of it in the next one?
    done: bool,
}

impl Span {
    fn is_read(&self) -> bool {
        self.done || self.left == 0
    }

    /// Is its end known and not reached? The last span of a whole type is followed by a guess instead.
    fn is_broken_off(&self) -> bool {
        self.left == 0 && !self.done && !matches!(self.end, End::Kind(None))
    }

    fn take(&mut self, mut page: Lines) {
        self.left -= 1;
        self.done = page.done;
        self.at.pass(&page, matches!(self.end, End::Member(_)));
        if let Some(mark) = page.mark.take() {
            let first = self.marks.take().map_or_else(|| mark.clone(), |(first, _)| first);
            self.marks = Some((first, mark));
        }
        self.ready.push_back(page);
    }
}

impl<'a> Ahead<'a> {
    /// From a place on; nothing is read before the first page is asked for.
    pub fn new(source: Source<'a>, from: Cursor) -> Self {
        Self { source, from: Some(from), spans: VecDeque::new() }
    }

    /// The next page; `None` at the end. It may be empty.
    ///
    /// # Errors
    /// The store's.
    pub async fn next(&mut self) -> Result<Option<Lines>, StoreError> {
        loop {
            self.read_on();
            let Some(first) = self.spans.front_mut() else { return Ok(None) };
            if let Some(page) = first.ready.pop_front() {
                return Ok(Some(page));
            }
            if first.done {
                self.spans.pop_front();
                continue;
            }
            match first.pages.recv().await {
                Some(page) => first.take(page),
                // It ends early only where it fails.
                None => {
                    (&mut first.reading).await?;
                    let reason = "its reader stopped".to_owned();
                    return Err(StoreError::Engine { action: "read a page", reason });
                }
            }
        }
    }

    /// Takes what was read, and begins to read what comes next.
    fn read_on(&mut self) {
        for span in &mut self.spans {
            while let Ok(page) = span.pages.try_recv() {
                span.take(page);
            }
        }
        self.go_on();
        let is_wanting = |spans: &VecDeque<Span>| {
            spans.iter().filter(|span| !span.is_read()).count() < SPANS
                && spans.iter().map(|span| span.ready.len()).sum::<usize>() <= PAGES
        };
        while is_wanting(&self.spans) && self.add() {}
    }

    /// Goes on where a span was broken off, unless enough waits before that: a span may be long, since a guess can be far
    /// off and a compartment large.
    fn go_on(&mut self) {
        let mut waiting = 0;
        for at in 0..self.spans.len() {
            let span = &self.spans[at];
            waiting += span.ready.len();
            if waiting > PAGES {
                return;
            }
            if span.is_broken_off() {
                let rest = self.source.begin(span.at.clone(), None, span.end.clone());
                self.spans[at].done = true;
                self.spans.insert(at + 1, rest);
                return;
            }
        }
    }

    /// Begins to read behind the last span; `false` where that cannot be or nothing is left.
    fn add(&mut self) -> bool {
        let Some(last) = self.spans.back_mut() else {
            let Some(from) = self.from.take() else { return false };
            return self.add_from(from);
        };
        if let End::Member(end) = last.end {
            return self.add_from(Cursor::of_member(end));
        }
        if !last.is_read() || last.done {
            return false;
        }
        last.done = true;
        let from = last.at.clone();
        let next = last.marks.take().map(|(first, last)| last.beyond(&first));
        self.spans.push_back(self.source.begin(from, None, End::Kind(next.clone())));
        if next.is_some() {
            self.spans.push_back(self.source.begin(Cursor::default(), next, End::Kind(None)));
        }
        true
    }

    /// Begins a span at a place, where there is anything from there on.
    fn add_from(&mut self, from: Cursor) -> bool {
        let end = match self.source.members {
            None => End::Kind(None),
            Some(members) if from.member() < members.len() => {
                End::Member(members.len().min(from.member() + MEMBERS))
            }
            Some(_) => return false,
        };
        self.spans.push_back(self.source.begin(from, None, end));
        true
    }
}

impl Source<'_> {
    /// Begins to read from a place on, or from a mark.
    fn begin(&self, from: Cursor, mark: Option<Mark>, end: End) -> Span {
        let of = match (&end, self.members) {
            (End::Member(end), Some(members)) => {
                let ids = (from.member()..*end).filter_map(|at| members.get(at));
                Whole::Compartments(ids.map(|id| format!("Patient/{id}")).collect())
            }
            (End::Kind(until), _) => Whole::Kind { from: mark, until: until.clone() },
            (End::Member(_), None) => unreachable!("spans of members are made where there are any"),
        };
        let (sender, pages) = mpsc::channel(PAGES);
        let (store, kind, seq) = (self.store.clone(), self.kind.to_owned(), self.seq);
        let (wanted, after) = (self.wanted.clone(), from.after().map(str::to_owned));
        let reading = Task::of(async move {
            let scan = Scan::at(seq).limit(PAGE).after(after.as_deref());
            let keep = move |seen: &Seen<'_>| wanted.has(seen);
            let mut left = PAGES;
            let page = move |lines| {
                left -= 1;
                // There is room for all of them; it fails where nobody reads on.
                sender.try_send(lines).is_ok() && left > 0
            };
            store.scan_lines(&kind, of, scan, keep, page).await
        });
        Span { end, pages, reading, left: PAGES, ready: VecDeque::new(), at: from, marks: None, done: false }
    }
}

#[cfg(test)]
mod tests {
    use store::{Draft, ResourceKey, VersionWrite};

    use super::*;

    /// Ids that lie far from one another at first and close together then, so that the guess is far off: a span of many
    /// times what is read in one go.
    fn ids() -> Vec<String> {
        let far = (0..4 * PAGE.count).map(|at| format!("{:05x}", at * 16));
        far.chain((0..20 * PAGE.count).map(|at| format!("2{at:05}"))).collect()
    }

    #[tokio::test]
    async fn whoever_writes_slowly_holds_no_more_pages() {
        let store = Store::memory();
        let ids = ids();
        let put = |id: &String| {
            let draft = Draft { bytes: id.clone().into_bytes(), version_at: 0, updated_at: 0 };
            VersionWrite::put(ResourceKey::new("Observation", id), draft, Vec::new())
        };
        store.commit(ids.iter().map(put).collect(), Timestamp::UNIX_EPOCH).await.unwrap();
        let wanted = Wanted { since: None, until: None, whose: None };
        let source = Source { store: &store, kind: "Observation", seq: Seq::LATEST, wanted, members: None };
        let mut ahead = Ahead::new(source, Cursor::default());
        let mut found = Vec::new();
        while let Some(page) = ahead.next().await.unwrap() {
            found.extend_from_slice(&page.text);
            // What can be read meanwhile is read.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            let held: usize = ahead.spans.iter().map(|span| span.ready.len() + span.pages.len()).sum();
            assert!(held <= 3 * PAGES, "{held} pages are held");
        }
        let found = String::from_utf8(found).unwrap();
        assert_eq!(found.lines().count(), ids.len());
        assert!(found.lines().zip(&ids).all(|(line, id)| line.ends_with(id.as_str())));
    }
}
