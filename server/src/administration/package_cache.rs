//! FHIR packages by name, from the cache of the user (HL7, FHIR Package Cache): the folder
//! `NAME#VERSION/package` with resources and a `package.json`, which lists the packages on which it depends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The part of `package.json` that is read.
#[derive(Deserialize)]
struct PackageManifest {
    #[serde(default)]
    dependencies: BTreeMap<String, String>,
}

/// The absolute paths of the given files and folders, and of the given packages with all on which they
/// depend, those first. `cache` is the folder of the cache, by default that in the home folder.
///
/// # Errors
/// An error if a package or one on which it depends is not in the cache.
pub(super) fn resolve_packages(paths: Vec<PathBuf>, cache: Option<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut resolver = PackageResolver { cache, seen: BTreeSet::new(), paths: Vec::new() };
    for path in paths {
        match package_name(&path) {
            Some((name, version)) if !path.exists() => resolver.add(name, version, &[])?,
            _ => resolver.paths.push(absolute(path)?),
        }
    }
    Ok(resolver.paths)
}

/// The name and version of an argument that names a package: `hl7.fhir.r4.core#4.0.1`, or with `@`.
fn package_name(path: &Path) -> Option<(&str, &str)> {
    let (name, version) = path.to_str()?.split_once(['#', '@'])?;
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    (is_word(name) && is_word(version)).then_some((name, version))
}

struct PackageResolver {
    cache: Option<PathBuf>,
    seen: BTreeSet<String>,
    paths: Vec<PathBuf>,
}

impl PackageResolver {
    /// Adds the packages on which a package depends, and the package. `by` are the packages that need it.
    fn add(&mut self, name: &str, version: &str, by: &[String]) -> Result<()> {
        let home = || std::env::home_dir().map(|home| home.join(".fhir/packages"));
        let cache =
            self.cache.clone().or_else(home).context("the home folder is unknown; add --package-cache")?;
        let package = self.find(&cache, name, version).with_context(|| {
            let requirer = by.last().map(|by| format!(", which {by} needs,")).unwrap_or_default();
            format!(
                "the package {name}#{version}{requirer} is not in {}; install it there, or name its .tgz file",
                cache.display()
            )
        })?;
        let own = package.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if by.contains(&own) {
            bail!(
                "the package {own} depends on itself through {}; name their .tgz files instead",
                by.join(", ")
            );
        }
        if !self.seen.insert(own.clone()) {
            return Ok(());
        }
        let manifest = package.join("package/package.json");
        let text =
            std::fs::read(&manifest).with_context(|| format!("failed to read {}", manifest.display()))?;
        let PackageManifest { dependencies } = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not the manifest of a package", manifest.display()))?;
        let by: Vec<String> = by.iter().cloned().chain([own]).collect();
        for (name, version) in dependencies {
            self.add(&name, &version, &by)?;
        }
        self.paths.push(absolute(package.join("package"))?);
        Ok(())
    }

    /// The folder of a package. A version such as `4.0.x` stands for the last one in the cache.
    fn find(&self, cache: &Path, name: &str, version: &str) -> Option<PathBuf> {
        let exact = cache.join(format!("{name}#{version}"));
        if exact.join("package").is_dir() {
            return Some(exact);
        }
        let prefix = version.strip_suffix('x').filter(|prefix| prefix.is_empty() || prefix.ends_with('.'))?;
        let mut versions: Vec<String> = std::fs::read_dir(cache)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|folder| Some(folder.strip_prefix(&format!("{name}#{prefix}"))?.to_owned()))
            .collect();
        let numbers =
            |rest: &String| -> Vec<u32> { rest.split('.').filter_map(|part| part.parse().ok()).collect() };
        versions.sort_by_key(numbers);
        versions.pop().map(|rest| cache.join(format!("{name}#{prefix}{rest}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_come_with_those_on_which_they_depend() {
        let cache = tempfile::tempdir().unwrap();
        let package = |name: &str, dependencies: &str| {
            let folder = cache.path().join(name).join("package");
            std::fs::create_dir_all(&folder).unwrap();
            let manifest = format!(r#"{{"name":"any","dependencies":{{{dependencies}}}}}"#);
            std::fs::write(folder.join("package.json"), manifest).unwrap();
        };
        package("core#4.0.1", "");
        package("terms#5.9.0", r#""core":"4.0.x""#);
        package("terms#5.10.0", r#""core":"4.0.1""#);
        package("guide#1.0.0", r#""core":"4.0.1","terms":"5.x""#);
        package("lost#1", r#""nowhere":"2""#);
        package("one#1", r#""two":"1""#);
        package("two#1", r#""one":"1""#);
        let resolve = |names: &[&str]| {
            let paths = names.iter().map(PathBuf::from).collect();
            let resolved = resolve_packages(paths, Some(cache.path().to_owned()));
            let name = |path: PathBuf| {
                let path = path.strip_prefix(cache.path()).map(Path::to_owned).unwrap_or(path);
                path.display().to_string()
            };
            resolved
                .map(|paths| paths.into_iter().map(name).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        let all = ["core#4.0.1/package", "terms#5.10.0/package", "guide#1.0.0/package"].map(str::to_owned);
        assert_eq!(resolve(&["guide#1.0.0"]).as_deref(), Ok(&all[..]));
        assert_eq!(resolve(&["guide@1.0.0", "core#4.0.1"]).as_deref(), Ok(&all[..]));
        let error = resolve(&["lost#1"]).unwrap_err();
        assert!(error.starts_with("the package nowhere#2, which lost#1 needs, is not in"), "{error}");
        assert!(resolve(&["one#1"]).unwrap_err().contains("depends on itself"));
        assert!(resolve(&["guide#9"]).unwrap_err().contains("guide#9 is not in"));
        // Other arguments are paths, which the import checks.
        assert!(resolve(&["folder/a#1.json"]).unwrap()[0].ends_with("folder/a#1.json"));
    }
}
