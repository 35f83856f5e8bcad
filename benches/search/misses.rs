//! Prints the queries that docwharf does not answer in the first place, for work on the ranking.

use crate::corpus::Target;
use crate::measure::EngineAnswers;
use crate::queries::Query;
use crate::sections::SectionMaps;

/// The results that are printed for a query.
const SHOWN_RESULTS: usize = 3;
/// The targets that are printed for a query.
const SHOWN_TARGETS: usize = 3;

/// Prints each query whose first result is on another page, then those whose first result is in another section.
pub(crate) fn print(queries: &[Query], answers: &EngineAnswers, sections: &mut SectionMaps) {
    let mut at_other_sections = Vec::new();
    for ((query, results), corrected) in queries.iter().zip(&answers.results).zip(&answers.corrected) {
        let is_right = |result: &Target| query.targets.iter().any(|target| target.page == result.page);
        let rank = results.iter().position(is_right);
        let corrected = corrected.as_ref().map_or_else(String::new, |words| format!(", searched for: {words}"));
        let rank_text = rank.map_or_else(|| "none".to_owned(), |rank| (rank + 1).to_string());
        let text = format!(
            "{} [{}] rank {rank_text}{corrected}\n    wanted {}\n    found  {}",
            query.text,
            query.kind.name(),
            list(&query.targets, SHOWN_TARGETS),
            list(results, SHOWN_RESULTS)
        );
        if rank != Some(0) {
            println!("{text}");
        } else if !sections.is_at_section(&results[0], &query.targets) {
            at_other_sections.push(text);
        }
    }
    println!("\nThe right page first, but another section:\n{}\n", at_other_sections.join("\n"));
}

fn list(targets: &[Target], shown: usize) -> String {
    targets.iter().take(shown).map(Target::to_string).collect::<Vec<_>>().join("  ")
}
