//! The import of one release: detects the format, reads the files and builds the index.

use terminology::CodeSystemIndex;

use crate::error::ImportError;
use crate::format::{self, ReadRelease};
use crate::progress::{ProgressMeter, ReleaseProgress};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;
use crate::stated_release::StatedRelease;

/// An imported release.
#[derive(Debug)]
pub struct ImportedRelease {
    /// Index of the code system.
    pub index: CodeSystemIndex,
    /// Name of the detected format, such as `SNOMED CT RF2`.
    pub format: &'static str,
}

/// Reads the release in the last source, together with the releases on which it depends.
pub(crate) fn read_release<'m>(
    mut sources: Vec<ReleaseSource<'m>>,
    stated: &StatedRelease,
    progress: &'m mut dyn FnMut(ReleaseProgress<'_>),
) -> Result<ImportedRelease, ImportError> {
    let meter = ProgressMeter::new(format::total_bytes(&mut sources, ReleaseSource::size)?, progress);
    sources.iter_mut().for_each(|source| source.report_to(&meter));
    let (source, dependencies) = sources.split_last_mut().expect("the last source is the release");
    let name = source.path().display().to_string();
    let format = format::detect_format(source).ok_or_else(|| {
        ImportError::in_file(&name, "this is not a release of a code system in a supported layout")
    })?;
    if let Some(options) = stated.unfit_options(format.options) {
        return Err(ImportError::in_file(&name, format_args!("its format is {}; {options}", format.name)));
    }
    let mut reader = ReleaseReader { source, dependencies, stated };
    let index = match format.read {
        ReadRelease::Build(read) => {
            read(&mut reader)?.finish().map_err(|reason| ImportError::in_file(&name, reason))?
        }
        ReadRelease::Load(read) => read(&mut reader)?,
    };
    if let Some(cycle) = index.cycle() {
        let reason = format!("the hierarchy has a cycle: {}", cycle.join(" > "));
        return Err(ImportError::in_file(&name, reason));
    }
    Ok(ImportedRelease { index, format: format.name })
}
