//! Jump labels: letters over all elements that can be selected.

use ratatui::layout::Rect;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr as _;

use super::canvas::{Canvas, ClickRegion};
use crate::model::ClickTarget;

/// Letters of labels, those of the home row first.
const LETTERS: &[u8] = b"asdfghjklqwertyuiopzxcvbnm";

/// The labels of the regions of one screen. They have one letter, or two if there are more regions than
/// letters.
pub struct JumpLabels {
    length: usize,
}

impl JumpLabels {
    pub fn new(regions: usize) -> Self {
        Self { length: if regions > LETTERS.len() { 2 } else { 1 } }
    }

    /// The label of the region at an index; `None` if all labels are used.
    pub fn label(&self, index: usize) -> Option<String> {
        let letter = |index: usize| LETTERS.get(index).map(|letter| char::from(*letter));
        match self.length {
            1 => letter(index).map(String::from),
            _ => Some([letter(index / LETTERS.len())?, letter(index % LETTERS.len())?].iter().collect()),
        }
    }

    /// The element with this label.
    pub fn target(&self, label: &str, regions: &[ClickRegion]) -> Option<ClickTarget> {
        let index = (0..regions.len()).find(|index| self.label(*index).as_deref() == Some(label))?;
        Some(regions[index].1)
    }

    /// Returns whether the label of a region begins with this text.
    pub fn has_prefix(&self, typed: &str, regions: usize) -> bool {
        (0..regions).filter_map(|index| self.label(index)).any(|label| label.starts_with(typed))
    }
}

/// Draws the labels that begin with the typed letters.
pub(super) fn draw(typed: &str, canvas: &mut Canvas) {
    let regions: Vec<Rect> = canvas.regions.iter().map(|(area, _)| *area).collect();
    let labels = JumpLabels::new(regions.len());
    for (index, area) in regions.into_iter().enumerate() {
        let Some(label) = labels.label(index).filter(|label| label.starts_with(typed)) else { continue };
        let width = (label.width() as u16).min(area.width);
        canvas.draw(
            Line::styled(label, canvas.theme.jump()),
            Rect { width, height: 1.min(area.height), ..area },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_has_its_own_label() {
        for count in [1, 26, 27, 300] {
            let labels = JumpLabels::new(count);
            let all: std::collections::BTreeSet<_> =
                (0..count).filter_map(|index| labels.label(index)).collect();
            assert_eq!(all.len(), count);
        }
        let regions = [(Rect::default(), ClickTarget::Field(0)), (Rect::default(), ClickTarget::Row(7))];
        let labels = JumpLabels::new(regions.len());
        assert_eq!(labels.target("s", &regions), Some(ClickTarget::Row(7)));
        assert_eq!(labels.target("d", &regions), None);
    }
}
