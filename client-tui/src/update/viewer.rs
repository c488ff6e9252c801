//! Updates of the viewer of exported files.

use std::path::Path;

use crate::json_path::{self, Selector};
use crate::model::{CodeCheck, Model, ResourceDetail, Screen, Viewer, ViewerPage};
use crate::msg::{Answered, FoundResource, RuntimeEffect};

/// Number of rows around the selected line that must be loaded.
const MARGIN: u64 = 60;

/// Opens the viewer with the downloaded files of the selected export.
pub(super) fn open(model: &mut Model) -> Vec<RuntimeEffect> {
    let files = model.export.downloaded_files();
    if files.is_empty() {
        model.notice = Some("Not possible: no file of this export is downloaded.".to_owned());
        return Vec::new();
    }
    model.export.viewer = Some(Viewer::new(files));
    model.screen = Screen::Files;
    load(model)
}

pub(super) fn close(model: &mut Model) {
    let Some(viewer) = &mut model.export.viewer else { return };
    if viewer.detail.take().is_none() {
        model.export.viewer = None;
        model.screen = Screen::Export;
    }
}

/// Requests the part of the list around the selected line, unless it is loaded.
fn load(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(viewer) = &model.export.viewer else { return Vec::new() };
    if viewer.lines.is_some() && viewer.page_is_near(MARGIN) {
        return Vec::new();
    }
    let Some(file) = viewer.files.get(viewer.file) else { return Vec::new() };
    vec![RuntimeEffect::ReadPage {
        path: file.path.clone(),
        filter: viewer.applied_filter.clone(),
        first: viewer.page_start(),
    }]
}

pub(super) fn on_page(model: &mut Model, path: &Path, filter: &str, result: Answered<(u64, ViewerPage)>) {
    let Some(viewer) = &mut model.export.viewer else { return };
    let is_current = viewer.files.get(viewer.file).is_some_and(|file| file.path == path);
    if !is_current || viewer.applied_filter != filter {
        return;
    }
    match result {
        Ok((lines, page)) => {
            viewer.lines = Some(lines);
            viewer.selected = viewer.selected.min(lines.saturating_sub(1));
            viewer.page = page;
        }
        Err(reason) => model.notice = Some(format!("Error: {reason}")),
    }
}

/// Moves the selection, or scrolls the resource.
pub(super) fn scroll(model: &mut Model, down: bool, by: u64) -> Vec<RuntimeEffect> {
    let Some(viewer) = &mut model.export.viewer else { return Vec::new() };
    if let Some(detail) = &mut viewer.detail {
        let by = by as u16;
        detail.scroll =
            if down { detail.scroll.saturating_add(by) } else { detail.scroll.saturating_sub(by) };
        return Vec::new();
    }
    let last = viewer.lines.unwrap_or(0).saturating_sub(1);
    viewer.selected =
        if down { viewer.selected.saturating_add(by).min(last) } else { viewer.selected.saturating_sub(by) };
    load(model)
}

pub(super) fn select(model: &mut Model, row: usize) -> Vec<RuntimeEffect> {
    let Some(viewer) = &mut model.export.viewer else { return Vec::new() };
    viewer.selected = (viewer.page.first + row as u64).min(viewer.lines.unwrap_or(0).saturating_sub(1));
    load(model)
}

pub(super) fn step_file(model: &mut Model, by: usize) -> Vec<RuntimeEffect> {
    let Some(viewer) = &mut model.export.viewer else { return Vec::new() };
    let file = (viewer.file + by) % viewer.files.len();
    show_file(viewer, file, 0);
    load(model)
}

/// Shows a file from this line on, without a filter.
fn show_file(viewer: &mut Viewer, file: usize, selected: u64) {
    viewer.file = file;
    viewer.selected = selected;
    viewer.lines = None;
    viewer.page = ViewerPage::default();
    viewer.filter.focused().clear();
    viewer.applied_filter.clear();
    viewer.detail = None;
}

/// Applies the filter if it is edited, or else opens the selected resource.
pub(super) fn enter(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(viewer) = &mut model.export.viewer else { return Vec::new() };
    if model.typing {
        let filter = viewer.filter.value("filter");
        if json_path::is_path(&filter)
            && let Err(reason) = Selector::parse(&filter)
        {
            model.notice = Some(format!("Error: {reason}"));
            return Vec::new();
        }
        model.typing = false;
        viewer.applied_filter = filter;
        viewer.detail = None;
        viewer.selected = 0;
        viewer.lines = None;
        viewer.page = ViewerPage::default();
        return load(model);
    }
    if viewer.detail.take().is_some() || viewer.lines == Some(0) {
        return Vec::new();
    }
    read_selected(viewer)
}

fn read_selected(viewer: &Viewer) -> Vec<RuntimeEffect> {
    let Some(file) = viewer.files.get(viewer.file) else { return Vec::new() };
    vec![RuntimeEffect::ReadResource {
        path: file.path.clone(),
        filter: viewer.applied_filter.clone(),
        at: viewer.selected,
    }]
}

pub(super) fn on_resource(model: &mut Model, result: Answered<ResourceDetail>) {
    match (result, &mut model.export.viewer) {
        (Ok(detail), Some(viewer)) => viewer.detail = Some(detail),
        (Err(reason), _) => model.notice = Some(format!("Error: {reason}")),
        (Ok(_), None) => {}
    }
}

/// Selects the next reference of the resource.
pub(super) fn next_reference(model: &mut Model) {
    let detail = model.export.viewer.as_mut().and_then(|viewer| viewer.detail.as_mut());
    if let Some(detail) = detail.filter(|detail| !detail.references.is_empty()) {
        detail.selected_reference = (detail.selected_reference + 1) % detail.references.len();
    }
}

/// Looks for the resource of the selected reference in the files of the export.
pub(super) fn follow_reference(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(viewer) = &model.export.viewer else { return Vec::new() };
    let Some(reference) =
        viewer.detail.as_ref().and_then(|detail| detail.references.get(detail.selected_reference))
    else {
        return Vec::new();
    };
    vec![RuntimeEffect::FindResource { files: viewer.files.clone(), reference: reference.clone() }]
}

pub(super) fn on_found(model: &mut Model, result: Answered<FoundResource>) -> Vec<RuntimeEffect> {
    match (result, &mut model.export.viewer) {
        (Ok(target), Some(viewer)) => {
            show_file(viewer, target.file, target.line);
            let read = read_selected(viewer);
            let mut effects = load(model);
            effects.extend(read);
            effects
        }
        (Err(reason), _) => {
            model.notice = Some(format!("Error: {reason}"));
            Vec::new()
        }
        (Ok(_), None) => Vec::new(),
    }
}

/// Validates the codes of the resource against the value sets to which FHIR binds them.
pub(super) fn check_codes(model: &mut Model) -> Vec<RuntimeEffect> {
    let bearer = model.bearer.clone();
    let detail = model.export.viewer.as_ref().and_then(|viewer| viewer.detail.as_ref());
    let Some(detail) = detail else { return Vec::new() };
    model.notice = Some("Validating the codes …".to_owned());
    vec![RuntimeEffect::CheckCodes(detail.text.clone(), bearer)]
}

pub(super) fn on_codes(model: &mut Model, resource: &str, result: Answered<Vec<CodeCheck>>) {
    model.notice = None;
    let detail = model.export.viewer.as_mut().and_then(|viewer| viewer.detail.as_mut());
    // Another resource may be shown by now.
    if let Some(detail) = detail.filter(|detail| detail.text == resource) {
        detail.codes = Some(result);
    }
}
