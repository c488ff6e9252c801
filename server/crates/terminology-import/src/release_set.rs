//! Determines which releases are read together: an RF2 extension with the packages on which it depends, as
//! one edition, and an order file of ICD-10-CM with the tabular list of its year, in any location.
//!
//! Each given package becomes a separate edition. The International Edition is thus available next to a
//! national edition that depends on it, and an extension next to another extension that depends on it.
//! Dependencies are read from their files, because the index of an earlier import does not contain the
//! package of each row.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::icd10cm::{self, Icd10cmPart};
use super::rf2::{self, Rf2Package};
use crate::error::{ImportError, unreadable};
use crate::format;
use crate::progress::{ProgressMeter, ReleaseProgress};
use crate::release_import::{ImportedRelease, read_release};
use crate::release_source::ReleaseSource;
use crate::stated_release::StatedRelease;

/// Incremented when a reader changes its result for the same files, so that existing imports are repeated.
const READERS: u32 = 4;

/// A given release, with the packages on which it depends.
#[derive(Debug)]
pub struct Release {
    path: PathBuf,
    /// Paths of the dependencies, the base first; an error if a package is missing.
    dependencies: Result<Vec<PathBuf>, ImportError>,
    stated: StatedRelease,
}

impl Release {
    /// The path of the release.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A hash of all input files, which takes a fraction of the time of an import. Equal hashes mean equal
    /// indexes. The location of the files is not hashed, except for the version that some publishers include
    /// in the name of a folder.
    ///
    /// # Errors
    /// Returns [`ImportError`] if a file cannot be read or a package is missing.
    pub fn content_hash(&self, progress: &mut dyn FnMut(ReleaseProgress<'_>)) -> Result<String, ImportError> {
        let mut hasher = Xxh3::new();
        hasher.update(&READERS.to_le_bytes());
        for stated in [&self.stated.edition, &self.stated.version].into_iter().flatten() {
            hasher.update(stated.as_bytes());
            hasher.update(&[0]);
        }
        if self.stated.is_unpublished {
            hasher.update(b"unpublished");
        }
        if let Some(sheet) = &self.stated.table.sheet {
            hasher.update(sheet.as_bytes());
        }
        if self.stated.table.encoding.is_some() {
            hasher.update(b"encoding");
        }
        let mut sources = self.sources()?;
        let of = format::total_bytes(&mut sources, ReleaseSource::content_size)?;
        let meter = ProgressMeter::new(of, progress);
        for mut source in sources {
            source.report_to(&meter);
            if let Some(format) = format::detect_format(&source) {
                // Each text is prefixed with its length, so that different texts cannot produce the same
                // bytes.
                for text in [format.name, &(format.version_in_names)(&source).unwrap_or_default()] {
                    hasher.update(&(text.len() as u64).to_le_bytes());
                    hasher.update(text.as_bytes());
                }
            }
            let read = source.pass_content(&format::input_files(&source), &mut |piece| hasher.update(piece));
            read.map_err(unreadable(&source.path().display().to_string()))?;
        }
        Ok(format!("{:032x}", hasher.digest128()))
    }

    /// Imports the release.
    ///
    /// # Errors
    /// Returns [`ImportError`] if a file is invalid or a package is missing.
    pub fn import(
        &self,
        progress: &mut dyn FnMut(ReleaseProgress<'_>),
    ) -> Result<ImportedRelease, ImportError> {
        read_release(self.sources()?, &self.stated, progress)
    }

    /// The sources of the dependencies and of the release, which is the last one.
    fn sources<'m>(&self) -> Result<Vec<ReleaseSource<'m>>, ImportError> {
        let dependencies = self.dependencies.as_deref().map_err(Clone::clone)?;
        dependencies.iter().chain([&self.path]).map(|path| open(path)).collect()
    }
}

fn open<'m>(path: &Path) -> Result<ReleaseSource<'m>, ImportError> {
    ReleaseSource::open(path).map_err(unreadable(&path.display().to_string()))
}

/// The information about a release that is available before the import.
enum ReleaseInspection {
    Rf2Package(Rf2Package),
    Icd10cmPart(Icd10cmPart),
    Other,
}

impl ReleaseInspection {
    fn package(&self) -> Option<&Rf2Package> {
        match self {
            Self::Rf2Package(package) => Some(package),
            _ => None,
        }
    }

    fn part(&self) -> Option<&Icd10cmPart> {
        match self {
            Self::Icd10cmPart(part) => Some(part),
            _ => None,
        }
    }
}

/// Determines which of these releases are read together. The order of the paths does not matter.
pub fn group_releases(paths: Vec<PathBuf>) -> Vec<Release> {
    group_releases_as(paths, &StatedRelease::default())
}

/// Like [`group_releases`], with a stated edition and version for each SNOMED CT release.
pub fn group_releases_as(paths: Vec<PathBuf>, stated: &StatedRelease) -> Vec<Release> {
    let inspections: Vec<_> = paths.iter().map(|path| inspect_release(path, stated)).collect();
    let mut dependencies: Vec<_> =
        (0..paths.len()).map(|of| package_dependencies(of, &paths, &inspections)).collect();
    let parts: Vec<_> = inspections
        .iter()
        .map(|inspection| inspection.as_ref().ok().and_then(ReleaseInspection::part))
        .collect();
    let pairs = icd10cm::pair_parts(&parts);
    for (order, tabular) in &pairs {
        dependencies[*order] = Ok(vec![paths[*tabular].clone()]);
    }
    let releases = paths.into_iter().zip(dependencies).enumerate();
    let stands_alone = |index: usize| pairs.iter().all(|(_, tabular)| *tabular != index);
    releases
        .filter(|(index, _)| stands_alone(*index))
        .map(|(_, (path, dependencies))| Release { path, dependencies, stated: stated.clone() })
        .collect()
}

fn inspect_release(path: &Path, stated: &StatedRelease) -> Result<ReleaseInspection, ImportError> {
    let mut source = open(path)?;
    Ok(match format::detect_format(&source).map(|format| format.name) {
        Some(rf2::NAME) => ReleaseInspection::Rf2Package(Rf2Package::inspect(&mut source, stated)?),
        Some(icd10cm::NAME) => {
            Icd10cmPart::in_source(&source).map_or(ReleaseInspection::Other, ReleaseInspection::Icd10cmPart)
        }
        _ => ReleaseInspection::Other,
    })
}

/// The packages on which one of these releases depends; none if the release is not an RF2 package.
fn package_dependencies(
    of: usize,
    paths: &[PathBuf],
    inspections: &[Result<ReleaseInspection, ImportError>],
) -> Result<Vec<PathBuf>, ImportError> {
    let packages: Vec<_> = inspections
        .iter()
        .map(|inspection| inspection.as_ref().ok().and_then(ReleaseInspection::package))
        .collect();
    match &inspections[of] {
        Ok(ReleaseInspection::Rf2Package(_)) => find_dependencies(of, &packages)
            .map(|dependencies| dependencies.into_iter().map(|index| paths[index].clone()).collect())
            .map_err(|reason| ImportError::in_file(&paths[of].display().to_string(), reason)),
        Ok(_) => Ok(Vec::new()),
        Err(error) => Err(error.clone()),
    }
}

/// The packages on which a package depends, the base first, by their positions in the list.
///
/// A package names all modules on which it depends, including indirect dependencies. If two packages name the
/// same module, the dependency of the nearer package is used.
fn find_dependencies(of: usize, packages: &[Option<&Rf2Package>]) -> Result<Vec<usize>, String> {
    let index = |index: usize| packages[index].expect("only packages are inspected");
    let mut settled: BTreeSet<_> = index(of).holds.keys().collect();
    let mut queue: VecDeque<_> = index(of).needs.iter().collect();
    let mut providers: Vec<usize> = Vec::new();
    while let Some((module, date)) = queue.pop_front() {
        if !settled.insert(module) {
            continue;
        }
        let holds = |place: &usize| index(*place).holds.get(module) == Some(date);
        if providers.iter().any(holds) {
            continue;
        }
        let others = (0..packages.len()).filter(|place| *place != of && packages[*place].is_some());
        // Prefers the package with the fewest additional modules.
        let best = others.filter(holds).min_by_key(|place| index(*place).holds.len());
        let best = best.ok_or_else(|| missing_module(module, date, packages))?;
        providers.push(best);
        queue.extend(&index(best).needs);
    }
    // The base sorts first, because it has no dependencies.
    providers.sort_by_key(|place| index(*place).needs.len());
    Ok(providers)
}

fn missing_module(module: &str, date: &str, packages: &[Option<&Rf2Package>]) -> String {
    let dates = packages.iter().flatten().filter_map(|package| package.holds.get(module));
    let mut dates: Vec<_> = dates.map(String::as_str).collect();
    dates.sort_unstable();
    dates.dedup();
    let description = match dates[..] {
        [] => "which is in none of the given packages".to_owned(),
        _ => format!("but the given packages contain only its release of {}", dates.join(" and ")),
    };
    format!(
        "the extension builds on module {module} of {date}, {description}; name the package that contains it in \
         the same command, even if it was imported before"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the dependencies that are found among packages of the form `holds < needs`. Each module is
    /// written as `module@date`.
    #[track_caller]
    fn check(packages: &[&str], of: usize, expected: Result<&[usize], &str>) {
        let modules = |text: &str| {
            let references = text.split_whitespace().map(|one| one.split_once('@').unwrap());
            references.map(|(module, date)| (module.to_owned(), date.to_owned())).collect()
        };
        let packages: Vec<_> = packages
            .iter()
            .map(|text| text.split_once('<').unwrap_or((text, "")))
            .map(|(holds, needs)| Rf2Package {
                version: String::new(),
                holds: modules(holds),
                needs: modules(needs),
            })
            .collect();
        let packages: Vec<_> = packages.iter().map(Some).collect();
        match (find_dependencies(of, &packages), expected) {
            (Ok(dependencies), Ok(expected)) => assert_eq!(dependencies, expected),
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{reason}"),
            (dependencies, _) => panic!("unexpected result: {dependencies:?}"),
        }
    }

    #[test]
    fn dependencies_are_found_by_module_and_date() {
        let base = "core@2025 model@2025";
        check(&[base], 0, Ok(&[]));
        check(&["ext@9 < core@2025 model@2025", base], 0, Ok(&[1]));
        // One of two packages matches; no package matches; a package has another date of the module.
        check(&["ext@9 < core@2025 model@2025", "core@2024 model@2024", base], 0, Ok(&[2]));
        check(&["ext@9 < core@2025"], 0, Err("module core of 2025, which is in none of the given packages"));
        check(
            &["ext@9 < core@2025", "core@2024"],
            0,
            Err("core of 2025, but the given packages contain only its release of 2024"),
        );
        // An extension of another extension. Its dependency on the core is ignored, because the nearer
        // extension names another date.
        let both = ["top@9 < ext@8 core@2025 model@2025", "ext@8 < core@2024 model@2024", base];
        check(&both, 0, Ok(&[2, 1]));
        check(&both, 1, Err("module core of 2024"));
        // A package that names only its direct dependency.
        check(&["top@9 < ext@8", base, "ext@8 < core@2025"], 0, Ok(&[1, 2]));
        // An edition with more modules is used only if there is none with fewer.
        check(&["ext@9 < core@2025", "core@2025 model@2025 land@8", base], 0, Ok(&[2]));
        check(&["ext@9 < core@2025", "core@2025 model@2025 land@8"], 0, Ok(&[1]));
        // Two packages that depend on each other.
        check(&["a@1 < b@1", "b@1 < a@1"], 0, Ok(&[1]));
    }
}
