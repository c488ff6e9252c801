//! The National Drug Code directory of the FDA: `product.txt` and `package.txt`, tables with tabs.
//!
//! A package is a concept with the code as published (`0002-0152-01`) and one with the eleven digits of
//! claims (`00002015201`), both below the product (`0002-0152`). The files state no version.

use std::collections::HashMap;

use terminology::indexing::{IndexBuilder, ResourceHeader};

use crate::error::ImportError;
use crate::release_header::{property, release_header};
use crate::release_reader::ReleaseReader;
use crate::release_source::ReleaseSource;
use crate::table_reader::for_each_headed_row;

const URL: &str = "http://hl7.org/fhir/sid/ndc";

const PRODUCTS: &str = "product.txt";
const PACKAGES: &str = "package.txt";

/// Columns of products that become properties, with the names of the properties.
const PROPERTIES: [(&str, &str); 9] = [
    ("PRODUCTTYPENAME", "productType"),
    ("NONPROPRIETARYNAME", "nonproprietaryName"),
    ("DOSAGEFORMNAME", "doseForm"),
    ("ROUTENAME", "route"),
    ("LABELERNAME", "labeler"),
    ("SUBSTANCENAME", "substance"),
    ("ACTIVE_NUMERATOR_STRENGTH", "strength"),
    ("ACTIVE_INGRED_UNIT", "unit"),
    ("DEASCHEDULE?", "schedule"),
];

/// Returns the table of products, if that of packages is beside it.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    source.file_named(PACKAGES)?;
    source.file_named(PRODUCTS)
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    [PRODUCTS, PACKAGES].into_iter().filter_map(|name| source.file_named(name)).collect()
}

/// The date in the name of the folder or archive, such as `ndctext-20260105.zip`.
pub(super) fn version_in_names(source: &ReleaseSource) -> Option<String> {
    let name = source.path().file_name()?.to_string_lossy().into_owned();
    let digits = name.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8);
    digits.map(String::from)
}

/// Reads the directory.
///
/// # Errors
/// [`ImportError`] if a table is not valid or no version is stated.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let [products, packages] = [PRODUCTS, PACKAGES]
        .map(|name| reader.source.file_named(name).expect("the format was found by these files"));
    let version = reader.stated.version.clone().or_else(|| version_in_names(reader.source));
    let version = version.ok_or_else(|| {
        let reason = "no version found: the directory states none; name its date with --version, such as --version 20260105";
        ImportError::in_file(&reader.source.path().display().to_string(), reason)
    })?;
    let names = PROPERTIES.iter().map(|(_, name)| *name).chain(["package"]);
    let header = ResourceHeader {
        property: names.map(|name| property(name, "string")).collect(),
        ..release_header(URL, &version, "NDC", "National Drug Code directory")
    };
    let mut builder = IndexBuilder::new(&header).map_err(|reason| ImportError::in_file(&products, reason))?;
    let mut names: HashMap<String, String> = HashMap::new();
    read_products(reader, &products, &mut builder, &mut names)?;
    for_each_headed_row(
        reader.source,
        &packages,
        ["PRODUCTNDC", "NDCPACKAGECODE", "PACKAGEDESCRIPTION", "NDC_EXCLUDE_FLAG?"],
        |[product, code, description, excluded]| {
            let Some(name) = names.get(product) else {
                return Err(format!("the product {product} of the package {code} does not exist"));
            };
            for code in [Some(code.to_owned()), eleven_digits(code)].into_iter().flatten() {
                let (number, is_new) = builder.add_concept(&code)?;
                // Labelers list some packages twice.
                if !is_new {
                    continue;
                }
                builder.set_display(number, &format!("{name}, {description}"))?;
                builder.add_property(number, "package", description)?;
                if let Some(product) = builder.find_concept(product) {
                    builder.add_parent(number, product);
                }
                if excluded == "E" {
                    builder.mark_inactive(number);
                }
            }
            Ok(())
        },
    )?;
    Ok(builder)
}

/// Reads the products and their names. A product with several marketing categories has several rows.
fn read_products(
    reader: &mut ReleaseReader<'_, '_>,
    file: &str,
    builder: &mut IndexBuilder,
    names: &mut HashMap<String, String>,
) -> Result<(), ImportError> {
    let [kind, generic, form, route, labeler, substance, strength, unit, schedule] =
        PROPERTIES.map(|(column, _)| column);
    let columns = [
        "PRODUCTNDC",
        "PROPRIETARYNAME",
        "PROPRIETARYNAMESUFFIX?",
        "NDC_EXCLUDE_FLAG?",
        kind,
        generic,
        form,
        route,
        labeler,
        substance,
        strength,
        unit,
        schedule,
    ];
    for_each_headed_row(reader.source, file, columns, |row| {
        let [code, name, suffix, excluded, values @ ..] = row;
        let (number, is_new) = builder.add_concept(code)?;
        if !is_new {
            return Ok(());
        }
        let [_, generic, form, ..] = values;
        let name = if name.is_empty() { generic } else { name };
        let name = [name, suffix].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        builder.set_display(number, &format!("{name}, {form}"))?;
        names.insert(code.to_owned(), name);
        if excluded == "E" {
            builder.mark_inactive(number);
        }
        PROPERTIES
            .iter()
            .zip(values)
            .filter(|(_, value)| !value.is_empty())
            .try_for_each(|((_, name), value)| builder.add_property(number, name, value))
    })
}

/// The eleven digits of a code of three parts: five for the labeler, four for the product, two for the
/// package.
fn eleven_digits(code: &str) -> Option<String> {
    let mut parts = code.split('-');
    let [labeler, product, package] = [parts.next()?, parts.next()?, parts.next()?];
    let fits = labeler.len() <= 5 && product.len() <= 4 && package.len() <= 2 && parts.next().is_none();
    fits.then(|| format!("{labeler:0>5}{product:0>4}{package:0>2}"))
}
