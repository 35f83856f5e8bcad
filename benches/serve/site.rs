//! The site of a benchmark: the archive that docwharf imports, a copy for the peers with a `gzip -6` file beside each
//! text, and the pages that are requested.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::stats::shuffle;
use crate::docwharf::TAG;

/// The hot page is small, like most pages. The asset is as large as in earlier measurements, so that results can be
/// compared.
const HOT_PAGE_BYTES: u64 = 10 * 1024;
const ASSET_BYTES: u64 = 755_000;
/// The most pages that are requested at random. Of a larger site they are selected evenly by size.
const MAX_RANDOM_PAGES: usize = 4096;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Extensions of the files that the peers get in both codings. docwharf selects its own files.
const TEXT_EXTENSIONS: &[&str] = &["html", "css", "js", "json", "txt", "svg", "xml"];

/// A file of the site, with its address path.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub path: String,
    pub size: u64,
}

#[derive(Debug)]
pub(crate) struct Site {
    pub name: String,
    pub zip: PathBuf,
    /// The peers' document root.
    pub copy: PathBuf,
    pub files: usize,
    pub hot: File,
    pub asset: File,
    pub random: Vec<File>,
    bodies: HashMap<String, Vec<u8>>,
}

fn io<T>(result: std::io::Result<T>, operation: &str, path: &Path) -> Result<T, String> {
    result.map_err(|error| format!("cannot {operation} {}: {error}", path.display()))
}

fn list(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<(), String> {
    for entry in io(fs::read_dir(folder), "list", folder)? {
        let entry = io(entry, "list", folder)?;
        let (path, meta) = (entry.path(), io(entry.metadata(), "examine", folder)?);
        if meta.is_dir() {
            list(root, &path, files)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.push(File { path: format!("/{name}"), size: meta.len() });
        }
    }
    Ok(())
}

/// Whether the path needs no percent-encoding, so that the servers' decoding is not measured.
fn is_plain(file: &File) -> bool {
    file.path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
}

fn extension(file: &File) -> &str {
    file.path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn nearest<'a>(files: impl Iterator<Item = &'a File>, size: u64) -> Result<File, String> {
    files
        .min_by_key(|file| (file.size.abs_diff(size), file.path.clone()))
        .cloned()
        .ok_or("no page in the site".to_owned())
}

fn mean(files: &[File]) -> f64 {
    files.iter().map(|file| file.size).sum::<u64>() as f64 / files.len() as f64
}

/// Selects every n-th page by size. It starts where the mean size comes nearest to the mean of all pages, because a few
/// pages are very large.
fn select_evenly(mut pages: Vec<File>) -> Vec<File> {
    pages.sort_by(|a, b| (a.size, &a.path).cmp(&(b.size, &b.path)));
    let (step, overall_mean) = (pages.len().div_ceil(MAX_RANDOM_PAGES).max(1), mean(&pages));
    let selections = (0..step).map(|start| pages.iter().skip(start).step_by(step).cloned().collect::<Vec<_>>());
    let deviation = |files: &[File]| (mean(files) - overall_mean).abs();
    selections.min_by(|a, b| deviation(a).total_cmp(&deviation(b))).unwrap_or_default()
}

impl Site {
    /// Opens the site in `folder`, which has `html/` and `site.zip`. Makes the copy for the peers below `out`.
    pub(crate) fn open(folder: &Path, out: &Path) -> Result<Self, String> {
        let folder = io(fs::canonicalize(folder), "find", folder)?;
        let name = folder.file_name().and_then(|name| name.to_str()).ok_or("a site needs a name")?.to_owned();
        let (html, zip) = (folder.join("html"), folder.join("site.zip"));
        let mut files = Vec::new();
        list(&html, &html, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        // Without the pages that the site already has in compressed form: the peers would serve the site's file.
        let compressed_by_site: Vec<String> =
            files.iter().filter_map(|f| f.path.strip_suffix(".gz").map(str::to_owned)).collect();
        let texts = || {
            files
                .iter()
                .filter(|file| TEXT_EXTENSIONS.contains(&extension(file)) && !compressed_by_site.contains(&file.path))
        };
        let copy = peers_copy(&html, &zip, out, &name, texts())?;
        let pages = || texts().filter(|file| extension(file) == "html" && is_plain(file));
        let mut random = select_evenly(pages().cloned().collect());
        shuffle(&mut random, SEED);
        let (hot, asset) =
            (nearest(pages(), HOT_PAGE_BYTES)?, nearest(texts().filter(|file| is_plain(file)), ASSET_BYTES)?);
        let mut site = Self { name, zip, copy, files: files.len(), hot, asset, random, bodies: HashMap::new() };
        site.read_bodies(&html)?;
        Ok(site)
    }

    fn read_bodies(&mut self, html: &Path) -> Result<(), String> {
        for file in self.random.iter().chain([&self.hot, &self.asset]) {
            let path = html.join(&file.path[1..]);
            self.bodies.insert(file.path.clone(), io(fs::read(&path), "read", &path)?);
        }
        let front_page = html.join("index.html");
        self.bodies.insert("/".to_owned(), io(fs::read(&front_page), "read", &front_page)?);
        Ok(())
    }

    /// The file on disk of a requested address.
    pub(crate) fn body(&self, path: &str) -> &[u8] {
        self.bodies.get(path).map_or(&[], Vec::as_slice)
    }

    /// Whether a body is the file of a requested address, with or without the tag of the search box.
    pub(crate) fn has_body(&self, path: &str, body: &[u8]) -> bool {
        let file = self.body(path);
        body == file || body.strip_suffix(TAG) == Some(file)
    }

    pub(crate) fn mean_of_random(&self) -> f64 {
        mean(&self.random)
    }

    /// All pages that need no percent-encoding, in the order of their paths.
    pub(crate) fn pages(&self) -> Result<Vec<File>, String> {
        let mut files = Vec::new();
        list(&self.copy, &self.copy, &mut files)?;
        files.retain(|file| extension(file) == "html" && is_plain(file));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

/// Makes the copy for the peers. A later run uses it again if the archive is the same.
fn peers_copy<'a>(
    html: &Path,
    zip: &Path,
    out: &Path,
    name: &str,
    texts: impl Iterator<Item = &'a File>,
) -> Result<PathBuf, String> {
    let meta = io(fs::metadata(zip), "find", zip)?;
    let source = format!("{} bytes, {:?}, gzip -6", meta.len(), meta.modified().ok());
    let (copy, source_file) = (out.join("copies").join(name), out.join("copies").join(format!("{name}.made-of")));
    if fs::read_to_string(&source_file).is_ok_and(|text| text == source) {
        return Ok(copy);
    }
    eprintln!("{name}: copying the site for the peers, with gzip -6 beside each file");
    let _ = fs::remove_dir_all(&copy);
    io(fs::create_dir_all(&copy), "make", &copy)?;
    run(Command::new("cp").arg("-a").arg(html.join(".")).arg(&copy))?;
    let mut compress = Command::new("xargs");
    compress
        .args(["-0", "-n", "500", "-P", "2", "gzip", "-6", "-k", "-n", "-f"])
        .current_dir(&copy)
        .stdin(Stdio::piped());
    let mut child = compress.spawn().map_err(|error| format!("cannot start xargs: {error}"))?;
    let mut input = child.stdin.take().ok_or("xargs has no standard input")?;
    for file in texts {
        write!(input, "{}\0", &file.path[1..]).map_err(|error| format!("cannot write to xargs: {error}"))?;
    }
    drop(input);
    let status = child.wait().map_err(|error| format!("cannot wait for gzip: {error}"))?;
    if !status.success() {
        return Err(format!("gzip failed in {}", copy.display()));
    }
    io(fs::write(&source_file, source), "write", &source_file)?;
    Ok(copy)
}

/// Runs a command to its end. Returns its output, or its error output as the error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
