//! Reads lines of a type before the writer needs them, from two positions concurrently, and returns them in
//! order.
//!
//! A type is divided into spans. For a Group, a span is a range of members. For a whole type, the start of
//! the next span is extrapolated from the length of the last span; the previous span is read until it reaches
//! that start.

use std::collections::VecDeque;
use std::sync::Arc;

use store::{
    LinePage, LineScanRange, PageLimit, ScanOptions, ScanPosition, Seq, Store, StoreError, UpdatedRange,
    VersionHeader, Versions as _,
};
use tokio::sync::mpsc;

use crate::abort_on_drop::AbortOnDrop;
use crate::group::GroupMembers;
use crate::job::cursor::ExportCursor;

/// Number of pages of a span that one read returns.
const PAGES: usize = 4;
/// Number of spans that are read concurrently.
const SPANS: usize = 2;
/// Number of members of a span, chosen so that a span has about [`PAGES`] pages.
const MEMBERS: usize = 384;

/// Condition on a resource that is checked before the resource body is read.
#[derive(Clone)]
pub(crate) struct VersionFilter {
    pub updated: UpdatedRange,
    /// Patients whose compartments the resource must be in. `None` accepts every resource.
    pub patients: Option<Arc<GroupMembers>>,
}

impl VersionFilter {
    /// Returns whether the resource is in the compartments. The store checks the range of times.
    fn has(&self, version: &VersionHeader<'_>) -> bool {
        self.patients.as_ref().is_none_or(|members| is_of(version, members))
    }
}

/// `true` if the resource is in the compartment of the current member and not in that of an earlier member.
/// Compartments and members have the same sort order.
fn is_of(version: &VersionHeader<'_>, members: &GroupMembers) -> bool {
    let mut compartments = version.compartments().filter(|compartment| {
        version.within == Some(compartment)
            || compartment.strip_prefix("Patient/").is_some_and(|id| members.position(id).is_some())
    });
    compartments.next().is_some_and(|first| version.within.is_none_or(|within| within == first))
}

/// The part of the store that a reader covers.
pub(crate) struct LineSource<'a> {
    pub store: &'a Store,
    pub kind: &'a str,
    pub seq: Seq,
    pub wanted: VersionFilter,
    /// Members whose compartments are read one after the other. `None` if the whole type is read.
    pub members: Option<&'a GroupMembers>,
}

/// Reads the lines of a type before they are requested.
pub(crate) struct ReadAhead<'a> {
    source: LineSource<'a>,
    /// Start of the first span. `None` when that span has been started.
    from: Option<ExportCursor>,
    /// Spans in order. Pages are returned from the first span.
    spans: VecDeque<ReadSpan>,
}

/// Position at which a span ends.
#[derive(Clone)]
enum SpanEnd {
    /// The end of the type, or the start of the next span if it is known.
    Kind(Option<ScanPosition>),
    /// The start of the compartment of this member.
    Member(usize),
}

/// A span that is being read.
struct ReadSpan {
    end: SpanEnd,
    pages: mpsc::Receiver<LinePage>,
    reading: AbortOnDrop<Result<(), StoreError>>,
    /// Number of pages that the current read may still return.
    left: usize,
    /// Pages that were read but not yet returned.
    ready: VecDeque<LinePage>,
    /// Cursor after the last page in `ready`.
    at: ExportCursor,
    /// Positions of the first full page and of the last page, from which the next span is extrapolated.
    marks: Option<(ScanPosition, ScanPosition)>,
    /// `true` if the span is complete, or its rest belongs to the next span.
    done: bool,
}

impl ReadSpan {
    fn is_read(&self) -> bool {
        self.done || self.left == 0
    }

    /// `true` if the end of the span is known and was not reached. The end of the last span of a whole type
    /// is unknown.
    fn is_broken_off(&self) -> bool {
        self.left == 0 && !self.done && !matches!(self.end, SpanEnd::Kind(None))
    }

    fn take(&mut self, mut page: LinePage) {
        self.left -= 1;
        self.done = page.done;
        self.at.pass(&page, matches!(self.end, SpanEnd::Member(_)));
        if let Some(mark) = page.mark.take() {
            let first = self.marks.take().map_or_else(|| mark.clone(), |(first, _)| first);
            self.marks = Some((first, mark));
        }
        self.ready.push_back(page);
    }
}

impl<'a> ReadAhead<'a> {
    /// Creates a reader that starts at a cursor. Reading begins with the first call of [`ReadAhead::next`].
    pub fn new(source: LineSource<'a>, from: ExportCursor) -> Self {
        Self { source, from: Some(from), spans: VecDeque::new() }
    }

    /// The next page, which may be empty, or `None` at the end.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn next(&mut self) -> Result<Option<LinePage>, StoreError> {
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
                // The task that reads ends before its last page only after an error.
                None => {
                    (&mut first.reading).await?;
                    let reason = "the task that reads ahead has stopped".to_owned();
                    return Err(StoreError::Engine { action: "read a page", reason });
                }
            }
        }
    }

    /// Collects the pages that were read and starts further reads.
    fn read_on(&mut self) {
        for span in &mut self.spans {
            while let Ok(page) = span.pages.try_recv() {
                span.take(page);
            }
        }
        self.go_on();
        let is_wanting = |spans: &VecDeque<ReadSpan>| {
            spans.iter().filter(|span| !span.is_read()).count() < SPANS
                && spans.iter().map(|span| span.ready.len()).sum::<usize>() <= PAGES
        };
        while is_wanting(&self.spans) && self.add() {}
    }

    /// Resumes interrupted spans, unless enough pages are ready in earlier spans. A span can be long, because
    /// the extrapolation may be wrong or a compartment large.
    fn go_on(&mut self) {
        let mut waiting = 0;
        for index in 0..self.spans.len() {
            let span = &self.spans[index];
            waiting += span.ready.len();
            if waiting > PAGES {
                return;
            }
            if span.is_broken_off() {
                let rest = self.source.begin(span.at.clone(), None, span.end.clone());
                self.spans[index].done = true;
                self.spans.insert(index + 1, rest);
                return;
            }
        }
    }

    /// Starts to read the span after the last one. Returns `false` if its start is unknown or nothing is
    /// left.
    fn add(&mut self) -> bool {
        let Some(last) = self.spans.back_mut() else {
            let Some(from) = self.from.take() else { return false };
            return self.add_from(from);
        };
        if let SpanEnd::Member(end) = last.end {
            return self.add_from(ExportCursor::of_member(end));
        }
        if !last.is_read() || last.done {
            return false;
        }
        last.done = true;
        let from = last.at.clone();
        let next = last.marks.take().map(|(first, last)| last.extrapolate(&first));
        self.spans.push_back(self.source.begin(from, None, SpanEnd::Kind(next.clone())));
        if next.is_some() {
            self.spans.push_back(self.source.begin(ExportCursor::default(), next, SpanEnd::Kind(None)));
        }
        true
    }

    /// Starts a span at a cursor. Returns `false` if nothing follows the cursor.
    fn add_from(&mut self, from: ExportCursor) -> bool {
        let end = match self.source.members {
            None => SpanEnd::Kind(None),
            Some(members) if from.member < members.len() => {
                SpanEnd::Member(members.len().min(from.member + MEMBERS))
            }
            Some(_) => return false,
        };
        self.spans.push_back(self.source.begin(from, None, end));
        true
    }
}

impl LineSource<'_> {
    /// Starts a read at a cursor.
    fn begin(&self, from: ExportCursor, mark: Option<ScanPosition>, end: SpanEnd) -> ReadSpan {
        let of = match (&end, self.members) {
            (SpanEnd::Member(end), Some(members)) => {
                let ids = (from.member..*end).filter_map(|index| members.get(index));
                LineScanRange::Compartments(ids.map(|id| format!("Patient/{id}")).collect())
            }
            (SpanEnd::Kind(until), _) => LineScanRange::Kind { from: mark, until: until.clone() },
            (SpanEnd::Member(_), None) => {
                unreachable!("a span ends at a member only if the source has members")
            }
        };
        let (sender, pages) = mpsc::channel(PAGES);
        let (store, kind, seq) = (self.store.clone(), self.kind.to_owned(), self.seq);
        let (filter, after) = (self.wanted.clone(), from.after.clone());
        let reading = AbortOnDrop::of(async move {
            let scan = ScanOptions::at(seq).limit(PAGE).after(after.as_deref());
            let updated = filter.updated;
            let keep = move |version: &VersionHeader<'_>| filter.has(version);
            let mut pages_left = PAGES;
            let page = move |lines| {
                pages_left -= 1;
                // The channel has a slot for each of the pages, so sending fails only if the receiver was
                // dropped.
                sender.try_send(lines).is_ok() && pages_left > 0
            };
            store.scan_lines(&kind, of, scan, updated, keep, page).await
        });
        ReadSpan {
            end,
            pages,
            reading,
            left: PAGES,
            ready: VecDeque::new(),
            at: from,
            marks: None,
            done: false,
        }
    }
}

/// Maximum size of a page.
pub(crate) const PAGE: PageLimit = PageLimit { count: 2_000, bytes: 1 << 20 };

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use store::{ResourceDraft, ResourceKey, VersionWrite};

    use super::*;

    /// Returns ids that are first far apart and later close together. The extrapolation is therefore wrong,
    /// and a span is many times as long as one read.
    fn ids() -> Vec<String> {
        let far = (0..4 * PAGE.count).map(|index| format!("{:05x}", index * 16));
        far.chain((0..20 * PAGE.count).map(|index| format!("2{index:05}"))).collect()
    }

    #[tokio::test]
    async fn a_slow_writer_keeps_a_bounded_number_of_pages() {
        let store = Store::memory();
        let ids = ids();
        let put = |id: &String| {
            let draft = ResourceDraft { bytes: id.clone().into_bytes(), version_at: 0, updated_at: 0 };
            VersionWrite::put(ResourceKey::new("Observation", id), draft, Vec::new())
        };
        store.commit(ids.iter().map(put).collect(), Timestamp::UNIX_EPOCH).await.unwrap();
        let filter = VersionFilter { updated: UpdatedRange::default(), patients: None };
        let source = LineSource {
            store: &store,
            kind: "Observation",
            seq: Seq::LATEST,
            wanted: filter,
            members: None,
        };
        let mut ahead = ReadAhead::new(source, ExportCursor::default());
        let mut output = Vec::new();
        while let Some(page) = ahead.next().await.unwrap() {
            output.extend_from_slice(&page.text);
            // Waits, so that the reader can read ahead.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            let bytes: usize = ahead.spans.iter().map(|span| span.ready.len() + span.pages.len()).sum();
            assert!(bytes <= 3 * PAGES, "{bytes} pages are held");
        }
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.lines().count(), ids.len());
        assert!(text.lines().zip(&ids).all(|(line, id)| line.ends_with(id.as_str())));
    }
}
