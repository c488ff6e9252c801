//! Which releases are read together: an RF2 extension is read over the packages that it builds on, as one edition, and
//! an order file of ICD-10-CM with the tabular list of its year, wherever that lies.
//!
//! Each package that is given makes an edition of its own, so that the International Edition stands beside a national
//! one that builds on it, and an extension beside one that builds on that. What one builds on is read from its files: of
//! a release that was imported before only the index is left, which does not say which row gave what.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::icd10cm::{self, Half};
use super::meter::Meter;
use super::rf2::{self, Package};
use super::{LoadError, Loaded, Progress, Source, unreadable};

/// Changes whenever a reader makes something else of the same files, so that what is there already is read again.
const READERS: u32 = 1;

/// A release that is given, with the packages that it builds on.
#[derive(Debug)]
pub struct Release {
    path: PathBuf,
    /// The lowest first; why there is something missing, where it is.
    beneath: Result<Vec<PathBuf>, LoadError>,
}

impl Release {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A hash of all that it is read from, which takes a fraction of the time that reading takes: equal ones give equal
    /// indexes. Where the files lie does not count but for the version, which some makers write in the name of a folder.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn content_hash(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<String, LoadError> {
        let mut hasher = Xxh3::new();
        hasher.update(&READERS.to_le_bytes());
        let mut sources = self.sources()?;
        let of = super::total(&mut sources, Source::content_size)?;
        let meter = Meter::new(of, progress);
        for mut source in sources {
            source.tell(&meter);
            if let Some(format) = super::format(&source) {
                // With lengths before them, none can be taken for part of another.
                for told in [format.name, &(format.named)(&source).unwrap_or_default()] {
                    hasher.update(&(told.len() as u64).to_le_bytes());
                    hasher.update(told.as_bytes());
                }
            }
            let read = source.content(&super::reads(&source), &mut |piece| hasher.update(piece));
            read.map_err(unreadable(&source.path().display().to_string()))?;
        }
        Ok(format!("{:032x}", hasher.digest128()))
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`LoadError`]: nothing was changed.
    pub fn load(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Loaded, LoadError> {
        super::read(self.sources()?, progress)
    }

    /// What it is read from, the release itself last.
    fn sources<'m>(&self) -> Result<Vec<Source<'m>>, LoadError> {
        let beneath = self.beneath.as_deref().map_err(Clone::clone)?;
        beneath.iter().chain([&self.path]).map(|path| open(path)).collect()
    }
}

fn open<'m>(path: &Path) -> Result<Source<'m>, LoadError> {
    Source::open(path).map_err(unreadable(&path.display().to_string()))
}

/// What there is to know of a release before it is read.
enum Look {
    Package(Package),
    Half(Half),
    Other,
}

impl Look {
    fn package(&self) -> Option<&Package> {
        match self {
            Self::Package(package) => Some(package),
            _ => None,
        }
    }

    fn half(&self) -> Option<&Half> {
        match self {
            Self::Half(half) => Some(half),
            _ => None,
        }
    }
}

/// Finds out which of these are read together. Their order does not count.
pub fn arrange(paths: Vec<PathBuf>) -> Vec<Release> {
    let looks: Vec<_> = paths.iter().map(|path| look(path)).collect();
    let mut beneath: Vec<_> = (0..paths.len()).map(|of| packages_beneath(of, &paths, &looks)).collect();
    let halves: Vec<_> = looks.iter().map(|look| look.as_ref().ok().and_then(Look::half)).collect();
    let pairs = icd10cm::pairs(&halves);
    for (order, tabular) in &pairs {
        beneath[*order] = Ok(vec![paths[*tabular].clone()]);
    }
    let releases = paths.into_iter().zip(beneath).enumerate();
    let stands_alone = |at: usize| pairs.iter().all(|(_, tabular)| *tabular != at);
    releases
        .filter(|(at, _)| stands_alone(*at))
        .map(|(_, (path, beneath))| Release { path, beneath })
        .collect()
}

fn look(path: &Path) -> Result<Look, LoadError> {
    let mut source = open(path)?;
    Ok(match super::format(&source).map(|format| format.name) {
        Some(rf2::NAME) => Look::Package(Package::read(&mut source)?),
        Some(icd10cm::NAME) => Half::of(&source).map_or(Look::Other, Look::Half),
        _ => Look::Other,
    })
}

/// The packages beneath one of these releases; none where it is no package.
fn packages_beneath(
    of: usize,
    paths: &[PathBuf],
    looks: &[Result<Look, LoadError>],
) -> Result<Vec<PathBuf>, LoadError> {
    let packages: Vec<_> = looks.iter().map(|look| look.as_ref().ok().and_then(Look::package)).collect();
    match &looks[of] {
        Ok(Look::Package(_)) => beneath(of, &packages)
            .map(|found| found.into_iter().map(|at| paths[at].clone()).collect())
            .map_err(|why| LoadError::in_file(&paths[of].display().to_string(), why)),
        Ok(_) => Ok(Vec::new()),
        Err(error) => Err(error.clone()),
    }
}

/// The packages beneath one, the lowest first, by their places in the list.
///
/// A package names every module that it builds on, those behind others too; where one is named twice, the nearer word
/// counts.
fn beneath(of: usize, packages: &[Option<&Package>]) -> Result<Vec<usize>, String> {
    let at = |at: usize| packages[at].expect("only packages are looked at");
    let mut settled: BTreeSet<_> = at(of).holds.keys().collect();
    let mut wanted: VecDeque<_> = at(of).needs.iter().collect();
    let mut found: Vec<usize> = Vec::new();
    while let Some((module, date)) = wanted.pop_front() {
        if !settled.insert(module) {
            continue;
        }
        let holds = |place: &usize| at(*place).holds.get(module) == Some(date);
        if found.iter().any(holds) {
            continue;
        }
        let others = (0..packages.len()).filter(|place| *place != of && packages[*place].is_some());
        // The one that brings the least besides.
        let best = others.filter(holds).min_by_key(|place| at(*place).holds.len());
        let best = best.ok_or_else(|| missing(module, date, packages))?;
        found.push(best);
        wanted.extend(&at(best).needs);
    }
    // Who needs nothing is an edition and the lowest.
    found.sort_by_key(|place| at(*place).needs.len());
    Ok(found)
}

fn missing(module: &str, date: &str, packages: &[Option<&Package>]) -> String {
    let dates = packages.iter().flatten().filter_map(|package| package.holds.get(module));
    let mut dates: Vec<_> = dates.map(String::as_str).collect();
    dates.sort_unstable();
    dates.dedup();
    let given = match dates[..] {
        [] => "no package given holds".to_owned(),
        _ => format!("the packages given hold only of {}", dates.join(" and ")),
    };
    format!(
        "it is an extension that builds on module {module} of {date}, which {given}; give the package that holds it in \
         the same command, also where it was imported before"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packages as `holds < needs`, each `module@date`, in the order of the list.
    #[track_caller]
    fn check(packages: &[&str], of: usize, expected: Result<&[usize], &str>) {
        let modules = |text: &str| {
            let named = text.split_whitespace().map(|one| one.split_once('@').unwrap());
            named.map(|(module, date)| (module.to_owned(), date.to_owned())).collect()
        };
        let packages: Vec<_> = packages
            .iter()
            .map(|text| text.split_once('<').unwrap_or((text, "")))
            .map(|(holds, needs)| Package {
                version: String::new(),
                holds: modules(holds),
                needs: modules(needs),
            })
            .collect();
        let packages: Vec<_> = packages.iter().map(Some).collect();
        match (beneath(of, &packages), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn what_a_package_builds_on_is_found_by_module_and_date() {
        let base = "core@2025 model@2025";
        check(&[base], 0, Ok(&[]));
        check(&["ext@9 < core@2025 model@2025", base], 0, Ok(&[1]));
        // The right one of two; none; another date of it.
        check(&["ext@9 < core@2025 model@2025", "core@2024 model@2024", base], 0, Ok(&[2]));
        check(&["ext@9 < core@2025"], 0, Err("module core of 2025, which no package given holds"));
        check(
            &["ext@9 < core@2025", "core@2024"],
            0,
            Err("core of 2025, which the packages given hold only of 2024"),
        );
        // Over another extension, whose own word on the core does not count where there is a nearer one.
        let both = ["top@9 < ext@8 core@2025 model@2025", "ext@8 < core@2024 model@2024", base];
        check(&both, 0, Ok(&[2, 1]));
        check(&both, 1, Err("module core of 2024"));
        // One that says only what lies next.
        check(&["top@9 < ext@8", base, "ext@8 < core@2025"], 0, Ok(&[1, 2]));
        // An edition that brings more is not taken where one is there that brings less.
        check(&["ext@9 < core@2025", "core@2025 model@2025 land@8", base], 0, Ok(&[2]));
        check(&["ext@9 < core@2025", "core@2025 model@2025 land@8"], 0, Ok(&[1]));
        // In a circle.
        check(&["a@1 < b@1", "b@1 < a@1"], 0, Ok(&[1]));
    }
}
