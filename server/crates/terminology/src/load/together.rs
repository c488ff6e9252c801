//! Which releases are read together: an RF2 extension is read over the packages that it builds on, as one edition.
//!
//! Each package that is given makes an edition of its own, so that the International Edition stands beside a national
//! one that builds on it, and an extension beside one that builds on that. What one builds on is read from its files: of
//! a release that was imported before only the index is left, which does not say which row gave what.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

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
    /// indexes. Where the files lie counts too, since some makers write the version in the name of a folder.
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
            let path = source.path().to_owned();
            let name = path.as_os_str().as_encoded_bytes();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
            let read = source.content(&super::reads(&source), &mut |piece| hasher.update(piece));
            read.map_err(unreadable(&path.display().to_string()))?;
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

/// Finds out which of these releases build on which. Their order does not count.
pub fn arrange(paths: Vec<PathBuf>) -> Vec<Release> {
    let looks: Vec<_> = paths.iter().map(|path| package(path)).collect();
    let packages: Vec<_> = looks.iter().map(|look| look.as_ref().ok().and_then(Option::as_ref)).collect();
    let beneath = (0..paths.len()).map(|of| match packages[of] {
        Some(_) => beneath(of, &packages)
            .map(|found| found.into_iter().map(|at| paths[at].clone()).collect())
            .map_err(|why| LoadError::in_file(&paths[of].display().to_string(), why)),
        None => looks[of].as_ref().map(|_| Vec::new()).map_err(Clone::clone),
    });
    let beneath: Vec<_> = beneath.collect();
    paths.into_iter().zip(beneath).map(|(path, beneath)| Release { path, beneath }).collect()
}

/// What an RF2 package says of itself; `None` for a release of another kind.
fn package(path: &Path) -> Result<Option<Package>, LoadError> {
    let mut source = open(path)?;
    match rf2::key(&source) {
        Some(_) => Package::read(&mut source).map(Some),
        None => Ok(None),
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
