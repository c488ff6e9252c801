//! The sources of a release, which the reader of a format gets.

use crate::release_source::ReleaseSource;
use crate::stated_release::StatedRelease;

/// The sources of one release, passed to the reader of its format.
pub(crate) struct ReleaseReader<'a, 'm> {
    pub(crate) source: &'a mut ReleaseSource<'m>,
    /// Sources that are read together with the release, the base first: RF2 packages, or the tabular list of
    /// ICD-10-CM.
    pub(crate) dependencies: &'a mut [ReleaseSource<'m>],
    /// Edition and version that the caller states.
    pub(crate) stated: &'a StatedRelease,
}

impl<'m> ReleaseReader<'_, 'm> {
    /// All sources, the base first.
    pub(crate) fn sources(&mut self) -> impl Iterator<Item = &mut ReleaseSource<'m>> {
        self.dependencies.iter_mut().chain(std::iter::once(&mut *self.source))
    }
}

/// The only item of a list; `None` if there are none or several.
pub(crate) fn only(files: Vec<String>) -> Option<String> {
    let [file]: [String; 1] = files.try_into().ok()?;
    Some(file)
}
