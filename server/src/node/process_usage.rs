//! Memory, processor time and file descriptors of this process, from `/proc`.

use std::fmt;
use std::path::Path;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Usage of resources by this process. A value is `None` on systems without `/proc`.
#[derive(Debug, Default)]
pub struct ProcessUsage {
    resident_bytes: Option<u64>,
    cpu_s: Option<f64>,
    open_descriptors: Option<u64>,
    max_descriptors: Option<u64>,
}

impl ProcessUsage {
    /// Reads the usage now.
    pub fn read() -> Self {
        let read = |name: &str| std::fs::read_to_string(Path::new("/proc/self").join(name)).ok();
        let status = read("status");
        let resident_kib: Option<u64> = status.as_deref().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.parse().ok()
        });
        let cpu_s = read("stat").and_then(|text| {
            // The name of the program may contain spaces and brackets.
            let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
            // User and system time are in hundredths of a second on all supported systems.
            Some((fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?) as f64 / 100.0)
        });
        Self {
            resident_bytes: resident_kib.map(|kib| kib * 1024),
            cpu_s,
            open_descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64),
            max_descriptors: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        }
    }

    /// Writes the metrics with the names that all Prometheus clients use.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        if let Some(seconds) = self.cpu_s {
            let help = "User and system time of the process";
            let mut metric =
                encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory of the process", self.resident_bytes),
            ("process_open_fds", "Open file descriptors", self.open_descriptors),
            ("process_max_fds", "Maximum number of open file descriptors", self.max_descriptors),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                metric.encode_gauge(&(value as f64))?;
            }
        }
        Ok(())
    }
}
