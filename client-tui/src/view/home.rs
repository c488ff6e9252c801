//! The Home screen: the contents of the server, the line that searches them, and the selected row.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::canvas::Canvas;
use super::parts::{MARK, error_line, list_line, push_right, waiting_line};
use super::theme::Theme;
use super::wrap::wrapped_rows;
use crate::api::{ConceptLabel, ConceptPlace, ContentEntry, ContentKind, ServerSummary};
use crate::clock::{clock_differs, clock_sentence};
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{FoundConcept, HomeRow, Model};

/// Number of lines of the selected row below the list.
const DETAIL_LINES: u16 = 7;
/// Maximum number of children that are named.
const CHILDREN: usize = 12;

/// Rows with their numbers. Headings and reasons have none.
type NumberedRows<'a> = Vec<(Option<usize>, Line<'a>)>;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let [list, detail] =
        canvas.split(area, area.height.saturating_sub(DETAIL_LINES + 2).max(area.height / 2));
    let title = match &model.home.scope {
        Some(entry) => format!("Concepts of {}; Esc returns", entry.title),
        None => "Everything on this server".to_owned(),
    };
    let list = canvas.pane(&title, true, list);
    let gap = u16::from(list.height > 8);
    let [line, _, rows] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(gap), Constraint::Min(0)]).areas(list);
    canvas.form_rows(&model.home.search, model.typing, line);
    let selectable = model.home.rows();
    let numbered = match model.home.is_searching() {
        true => result_rows(model, &selectable, rows.width, canvas.theme),
        false => content_rows(model, &selectable, rows.width, canvas.theme),
    };
    canvas.numbered_rows(numbered, model.home.selected, rows);
    let detail = canvas.pane("Selected", false, detail);
    draw_detail(model, selectable.into_iter().nth(model.home.selected), canvas, detail);
}

/// The lists of the server, with a heading for each kind.
fn content_rows<'a>(model: &'a Model, selectable: &[HomeRow], width: u16, theme: Theme) -> NumberedRows<'a> {
    let mut rows = Vec::new();
    let mut numbers = 0..;
    for kind in ContentKind::ALL {
        let response = model.home.list(kind);
        let count = match response {
            Answer::Done(list) if list.has_more => format!("  the first {}", list.entries.len()),
            Answer::Done(list) => format!("  {}", list.entries.len()),
            _ => String::new(),
        };
        let heading = [Span::styled(kind.title(), theme.strong()), Span::styled(count, theme.quiet())];
        rows.push((None, Line::from_iter(heading)));
        match response {
            Answer::None => {}
            Answer::Waiting { since } => {
                rows.push((None, waiting_line("  Reading the list", *since, model.now, theme)));
            }
            Answer::Failed(reason) => rows.push((None, Line::styled(format!("  {reason}"), theme.quiet()))),
            Answer::Done(list) if list.entries.is_empty() => {
                rows.push((None, Line::styled("  The server returns none.", theme.quiet())));
            }
            Answer::Done(list) => {
                for _ in &list.entries {
                    let number = numbers.next();
                    let row = number.and_then(|number| selectable.get(number));
                    let is_selected = number == Some(model.home.selected);
                    rows.extend(row.map(|row| (number, row_line(row, is_selected, width, theme))));
                }
            }
        }
        rows.push((None, Line::default()));
    }
    rows.pop();
    rows
}

/// The rows that were found, and the searches that are still awaited.
fn result_rows<'a>(model: &'a Model, selectable: &[HomeRow], width: u16, theme: Theme) -> NumberedRows<'a> {
    let home = &model.home;
    let lines = selectable.iter().enumerate();
    let mut rows: NumberedRows<'a> = lines
        .map(|(number, row)| (Some(number), row_line(row, number == home.selected, width, theme)))
        .collect();
    let waiting = home.found.iter().filter_map(|matches| match matches.answer {
        Answer::Waiting { since } => Some(since),
        _ => None,
    });
    if let Some(since) = waiting.min() {
        let count = home.found.iter().filter(|matches| matches.answer.is_waiting()).count();
        rows.push((None, waiting_line(&format!("Searching {count} code systems"), since, model.now, theme)));
    } else if rows.is_empty() {
        rows.push((None, Line::raw(format!("  Nothing matches in {} code systems.", home.found.len()))));
    }
    for (kind, list) in &home.titled {
        if let Answer::Failed(reason) = list {
            rows.push((None, Line::styled(format!("  {}: {reason}", kind.title()), theme.quiet())));
        }
    }
    for matches in &home.found {
        if let Answer::Failed(reason) = &matches.answer {
            rows.push((None, Line::styled(format!("  {}: {reason}", matches.title), theme.quiet())));
        }
    }
    rows
}

fn row_line(row: &HomeRow, is_selected: bool, width: u16, theme: Theme) -> Line<'static> {
    let concept = match row {
        HomeRow::Content(entry) => {
            return list_line(entry.title.clone(), note(entry), is_selected, width, theme);
        }
        HomeRow::Concept(concept) => concept,
    };
    let style = if is_selected { theme.accent() } else { Style::new() };
    let mut line = Line::from(vec![
        Span::styled(if is_selected { MARK } else { "  " }, theme.accent()),
        Span::styled(format!("{}  ", concept.code), theme.accent()),
        Span::styled(concept.display.clone(), style),
    ]);
    push_right(&mut line, Span::styled(concept.system_title.clone(), theme.quiet()), width);
    line
}

/// The number of concepts or members, or else the version or the id.
fn note(entry: &ContentEntry) -> String {
    match (entry.count, &entry.version) {
        (Some(count), _) => format!("{count} {}", entry.kind.counted()),
        (None, Some(version)) => version.clone(),
        (None, None) => entry.id.clone(),
    }
}

fn draw_detail(model: &Model, selected: Option<HomeRow>, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let mut lines = match &selected {
        Some(HomeRow::Concept(concept)) => concept_lines(model, concept, area.height, theme),
        Some(HomeRow::Content(entry)) => entry_lines(model, entry, theme),
        None => Vec::new(),
    };
    if !model.is_signed_in() && model.about.client_id.is_some() && model.about.backend_id.is_none() {
        let key = model.keys.label(Action::SignIn);
        lines.push(Line::styled(
            format!("No user is signed in: only public contents are shown. {key} signs in."),
            theme.warning(),
        ));
    }
    let line = match &model.home.summary {
        Answer::None => Line::default(),
        Answer::Waiting { since } => waiting_line("Reading the capabilities", *since, model.now, theme),
        Answer::Failed(reason) => error_line(reason, theme),
        Answer::Done(summary) => summary_line(model, summary, theme),
    };
    let height = match area.height {
        0..=3 => 0,
        4..=7 => 1,
        _ => wrapped_rows(&line.to_string(), area.width.into()) as u16,
    };
    let [text, facts] = Layout::vertical([Constraint::Min(0), Constraint::Length(height)]).areas(area);
    canvas.text(lines, text);
    canvas.text(vec![line], facts);
}

fn concept_lines(model: &Model, concept: &FoundConcept, height: u16, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::styled(concept.display.clone(), theme.good()),
        Line::from(vec![
            Span::styled(format!("{}  ", concept.code), theme.accent()),
            Span::styled(concept.system.clone(), theme.quiet()),
        ]),
    ];
    match model.home.place.as_ref().filter(|(placed, _)| placed == concept).map(|(_, place)| place) {
        Some(Answer::Done(place)) => lines.extend(place_lines(place, concept, height, theme)),
        Some(Answer::Waiting { since }) => {
            lines.push(waiting_line("Looking for its place", *since, model.now, theme));
        }
        Some(Answer::Failed(reason)) => lines.push(Line::styled(reason.clone(), theme.quiet())),
        Some(Answer::None) | None => {}
    }
    if let Some(first) = &model.home.first_code {
        let key = model.keys.label(Action::SubsumesConcept);
        let text = match first == concept {
            true => format!("{} is the first code. Select another one and press {key} again.", first.code),
            false => format!("{key} asks how {} and {} are related.", first.code, concept.code),
        };
        lines.push(Line::styled(text, theme.warning()));
    }
    lines
}

/// The concepts above and below: as a tree if there is space, or else in two lines.
fn place_lines(
    place: &ConceptPlace,
    concept: &FoundConcept,
    height: u16,
    theme: Theme,
) -> Vec<Line<'static>> {
    let name = |label: &ConceptLabel| label.display.clone().unwrap_or_else(|| label.code.clone());
    let own = if concept.display.is_empty() { &concept.code } else { &concept.display };
    let others = match place.other_parents {
        0 => String::new(),
        1 => "  (and another parent)".to_owned(),
        count => format!("  (and {count} other parents)"),
    };
    let tree_rows = place.ancestors.len() + 1 + place.children.len();
    let mut lines = Vec::new();
    if tree_rows + 6 < usize::from(height) {
        lines.push(Line::default());
        let indented = |depth: usize, text: String, style: Style| {
            let branch =
                if depth == 0 { String::new() } else { format!("{}└─ ", "   ".repeat(depth - 1)) };
            Line::from(vec![Span::styled(branch, theme.quiet()), Span::styled(text, style)])
        };
        let above = place.ancestors.iter().map(name).enumerate();
        lines.extend(above.map(|(depth, text)| indented(depth, text, Style::new())));
        let depth = place.ancestors.len();
        lines.push(indented(depth, format!("{own}{others}"), theme.strong()));
        lines.extend(place.children.iter().map(|child| indented(depth + 1, name(child), Style::new())));
        lines.push(Line::default());
    } else {
        let path: Vec<_> = place.ancestors.iter().map(name).chain([own.clone()]).collect();
        lines.push(Line::raw(format!("{}{others}", path.join(" › "))));
        if !place.children.is_empty() {
            let names: Vec<_> = place.children.iter().take(CHILDREN).map(name).collect();
            let more = match place.children.len().saturating_sub(CHILDREN) {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            lines.push(Line::raw(format!("below: {}{more}", names.join(", "))));
        }
    }
    lines.extend(place.definition.clone().map(Line::raw));
    lines
}

fn entry_lines(model: &Model, entry: &ContentEntry, theme: Theme) -> Vec<Line<'static>> {
    let mut title = vec![Span::styled(entry.title.clone(), theme.good())];
    title.extend(entry.version.as_ref().map(|version| Span::raw(format!("  version {version}"))));
    title.extend(entry.count.map(|count| Span::raw(format!("  {count} {}", entry.kind.counted()))));
    let identity = if entry.url.is_empty() { format!("Group/{}", entry.id) } else { entry.url.clone() };
    let does = match entry.kind {
        ContentKind::Groups => "exports this group",
        ContentKind::CodeSystems => "shows its concepts; then type to search them",
        ContentKind::ValueSets => "lists its codes",
    };
    let key = model.keys.label(Action::Send);
    vec![
        Line::from(title),
        Line::styled(identity, theme.quiet()),
        Line::from(vec![Span::styled(key, theme.accent()), Span::raw(format!(" {does}"))]),
    ]
}

/// Software, versions, clock and certificate of the server.
fn summary_line(model: &Model, summary: &ServerSummary, theme: Theme) -> Line<'static> {
    let mut facts =
        vec![Span::raw(summary.software.clone()), Span::raw(format!("FHIR {}", summary.fhir_version))];
    facts.extend(summary.clock_skew_s.map(|skew_s| match clock_differs(skew_s) {
        true => Span::styled(clock_sentence(skew_s), theme.bad()),
        false => Span::raw("clocks agree"),
    }));
    facts.extend(summary.certificate_ends_at.map(|end| {
        let date = end.to_zoned(model.about.zone.clone()).strftime("%Y-%m-%d").to_string();
        Span::raw(format!("certificate ends {date}"))
    }));
    let mut line = Line::default();
    for fact in facts.into_iter().filter(|fact| fact.content.width() > 0) {
        if line.width() > 0 {
            line.push_span(Span::raw(" · "));
        }
        line.push_span(fact);
    }
    line.style(theme.quiet())
}
