//! Measures the memory that processes take, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::Pid;

/// Returns the memory that these processes take together, in bytes. It counts private memory and, in parts, shared
/// memory (`Pss_Anon`, `Pss_Shmem` and `SwapPss` in `proc_pid_smaps(5)`), and files in memory (`memfd_create(2)`),
/// mapped or not. The cache of other files is not counted, because the kernel frees it when it needs memory.
pub(super) fn measure_memory(processes: &[Pid]) -> u64 {
    let mut seen_files = BTreeSet::new();
    let process_memory = |id: &Pid| {
        let folder = format!("/proc/{}", id.as_raw_nonzero());
        page_bytes(&folder).saturating_add(memory_file_bytes(&folder, &mut seen_files))
    };
    processes.iter().map(process_memory).fold(0, u64::saturating_add)
}

/// Returns the private and shared memory of a process in bytes.
fn page_bytes(folder: &str) -> u64 {
    let rollup = fs::read_to_string(format!("{folder}/smaps_rollup")).unwrap_or_default();
    let pages = sum_lines(&rollup, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]);
    if pages > 0 {
        return pages;
    }
    // Kernels before Linux 5.9 do not report these values. Shared memory then counts for each process.
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    sum_lines(&status, &["RssAnon:", "RssShmem:", "VmSwap:"])
}

/// Returns the sum of these lines in bytes; each line has its value in KiB.
fn sum_lines(text: &str, names: &[&str]) -> u64 {
    let number = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines.filter_map(number).sum::<u64>().saturating_mul(1024)
}

/// Returns the bytes of the files in memory that a process has open; a file already in `seen_files` does not count
/// again.
fn memory_file_bytes(folder: &str, seen_files: &mut BTreeSet<(u64, u64)>) -> u64 {
    let Ok(open) = fs::read_dir(format!("{folder}/fd")) else { return 0 };
    let in_memory = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
    };
    let mut bytes = 0u64;
    for path in open.flatten().map(|entry| entry.path()).filter(in_memory) {
        if let Ok(metadata) = fs::metadata(&path)
            && seen_files.insert((metadata.dev(), metadata.ino()))
        {
            bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_memory_includes_mapped_memory_and_open_memory_files() {
        let own_id = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        assert!(measure_memory(&[own_id]) > 0);
        let folder = format!("/proc/{}", std::process::id());
        let text = "x\nPss_Anon:   12 kB\nPss_File: 99 kB\nPss_Shmem: 3 kB\nSwapPss: 1 kB\nAnonHugePages: 7 kB\n";
        assert_eq!(sum_lines(text, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]), 16 << 10);
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &vec![1; 100_000]).unwrap();
        let mut seen_files = BTreeSet::new();
        assert!(memory_file_bytes(&folder, &mut seen_files) >= 100_000);
        assert_eq!(memory_file_bytes(&folder, &mut seen_files), 0, "each file is counted once");
    }
}
