//! `SQLite` FTS5: one row for each section, with the text that docwharf's own extractor returns, so that only the
//! engines differ. The tokenizer is `unicode61` and the order is `bm25`, both without options.

use std::path::Path;
use std::time::Instant;

use docwharf_search::extract::{ExtractLimits, extract_page};
use rusqlite::{Connection, params};

use crate::corpus::{CORPORA, OpenCorpus, Target};
use crate::results::IndexFigures;
use crate::timed::{path_text, run_timed};

pub(crate) const NAME: &str = "SQLite FTS5";
/// The option with which this program makes a database and ends, so that its memory can be measured.
pub(crate) const INDEX_OPTION: &str = "--fts5-index";
/// The sections that are read for ten pages.
const MAX_SECTIONS: i64 = 200;

/// Makes the database in a process of its own, and adds its figures.
pub(crate) fn measure_index(
    corpus: &OpenCorpus,
    corpora: &Path,
    folder: &Path,
    figures: &mut IndexFigures,
) -> Result<(), String> {
    let database = folder.join("fts5.sqlite");
    let _ = std::fs::remove_file(&database);
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let words = [path_text(&program)?, INDEX_OPTION, corpus.corpus.name, path_text(corpora)?, path_text(&database)?];
    let run = run_timed(&words, folder)?;
    figures.seconds.push(run.seconds);
    figures.peak_bytes.push(run.peak_bytes as f64);
    let metadata = std::fs::metadata(&database);
    figures.bytes = metadata.map_err(|error| format!("cannot read {}: {error}", database.display()))?.len();
    Ok(())
}

/// Makes the database: the work of the process that [`measure_index`] starts. `arguments` are the name of the corpus,
/// the folder of the corpora and the file.
pub(crate) fn make_database(arguments: &[String]) -> Result<(), String> {
    let [name, corpora, database] = arguments else { return Err("not three arguments".to_owned()) };
    let corpus = CORPORA.iter().find(|corpus| corpus.name == name).ok_or("no such corpus")?;
    let corpus = OpenCorpus::open(corpus, Path::new(corpora))?;
    insert_pages(&corpus, Path::new(database)).map_err(|error| format!("cannot make the database: {error}"))
}

fn insert_pages(corpus: &OpenCorpus, database: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let connection = Connection::open(database)?;
    connection.execute_batch(
        "PRAGMA journal_mode = off; PRAGMA synchronous = off;
         CREATE VIRTUAL TABLE sections USING fts5(title, heading, body, url UNINDEXED);
         BEGIN",
    )?;
    let mut insert = connection.prepare("INSERT INTO sections VALUES (?1, ?2, ?3, ?4)")?;
    for page in corpus.pages.paths() {
        let extracted = extract_page(&corpus.read(page)?, &ExtractLimits::default())?;
        if extracted.exclusion.is_some() {
            continue;
        }
        for section in extracted.sections {
            let heading = section.headings.last().map_or("", String::as_str);
            let url = Target { page: page.to_owned(), anchor: section.anchor }.to_string();
            insert.execute(params![extracted.title, heading, section.text, url])?;
        }
    }
    drop(insert);
    connection.execute_batch("COMMIT")?;
    Ok(())
}

/// A database of sections.
#[derive(Debug)]
pub(crate) struct Fts5Database {
    connection: Connection,
}

impl Fts5Database {
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let connection = Connection::open(folder.join("fts5.sqlite"));
        Ok(Self { connection: connection.map_err(|error| format!("cannot open the database: {error}"))? })
    }

    pub(crate) fn version() -> String {
        format!("SQLite {}", rusqlite::version())
    }

    /// Returns the places of the best sections, and the duration in milliseconds. Without a section that has all words,
    /// those that have some of them.
    pub(crate) fn search(&self, query: &str) -> Result<(Vec<Target>, f64), String> {
        let started = Instant::now();
        let mut urls = self.match_sections(&expression(query, " ")).map_err(|error| format!("{query}: {error}"))?;
        if urls.is_empty() {
            urls = self.match_sections(&expression(query, " OR ")).map_err(|error| format!("{query}: {error}"))?;
        }
        let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
        Ok((urls.iter().filter_map(|url| Target::from_href(url, "")).collect(), milliseconds))
    }

    fn match_sections(&self, expression: &str) -> rusqlite::Result<Vec<String>> {
        if expression.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT url FROM sections WHERE sections MATCH ?1 ORDER BY rank LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_map(params![expression, MAX_SECTIONS], |row| row.get(0))?.collect()
    }
}

/// The words as strings of the query language, the last one also as a prefix.
fn expression(query: &str, operator: &str) -> String {
    let words = query.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric));
    let strings: Vec<String> = words.map(|word| format!("\"{}\"", word.replace('"', ""))).collect();
    if strings.is_empty() { String::new() } else { format!("{}*", strings.join(operator)) }
}
