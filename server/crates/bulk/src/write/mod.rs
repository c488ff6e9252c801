//! Runs jobs: reads the selected resources, writes the files and records the progress.

pub(crate) mod job_record;
pub(crate) mod worker;
