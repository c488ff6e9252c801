//! Runs jobs: reads the selected resources, writes the files and records the progress.

pub(crate) mod worker;
