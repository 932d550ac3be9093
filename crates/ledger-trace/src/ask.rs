//! From a question to its answer: what the values mean, and whether that is one story, several or none.

use ledger_records::Identifier;
use ledger_records::identifiers::TABLE;

use crate::closure::{Candidate, Closure, Limits, Reader};
use crate::facts::Frames;
use crate::model::{
    Ambiguous, Answer, CandidateView, IdentifierView, JSON_VERSION, NotFound, RangeView,
};
use crate::query::Query;
use crate::source::{Source, SourceError};
use crate::story::{line, tell};

/// Answers a question.
///
/// # Errors
/// What the source says: a frame that does not stand its check ends the answer, because nothing is told on top of it.
pub fn trace(source: &dyn Source, query: &Query, limits: Limits) -> Result<Answer, SourceError> {
    let mut reader = Reader::new(source, limits);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut hit: Vec<String> = Vec::new();
    let mut more = false;
    for value in query
        .values
        .iter()
        .filter(|value| Query::is_possible(value))
    {
        let found = reader.candidates(value)?;
        let fitting: Vec<_> = found
            .into_iter()
            .filter(|c| query.fits(&c.identifier))
            .collect();
        if fitting.is_empty() {
            continue;
        }
        hit.push(value.clone());
        candidates.extend(fitting);
        if candidates.len() >= limits.candidates_max {
            more = true;
            candidates.truncate(limits.candidates_max);
            break;
        }
    }
    // Joining identifiers name one piece of work. In a text, the tenant's or a person's name beside it says less.
    if query.is_pasted && candidates.iter().any(|c| c.identifier.kind.is_joining()) {
        candidates.retain(|c| c.identifier.kind.is_joining());
    }
    candidates.sort_by_key(|c| !c.identifier.kind.is_joining());
    let stories = stories(&mut reader, &candidates)?;
    Ok(match stories.len() {
        0 => Answer::NotFound(not_found(query, source)),
        1 => {
            let (start, closure) = stories.into_iter().next().unwrap_or_default();
            Answer::Found(Box::new(tell(hit, &start, closure, source.extent())))
        }
        _ => Answer::Ambiguous(Ambiguous {
            version: JSON_VERSION,
            tried: hit,
            candidates: stories
                .iter()
                .map(|(start, closure)| shown(start, closure, &candidates))
                .collect(),
            more,
            range: RangeView::from(source.extent()),
        }),
    })
}

/// The stories that candidates lead to, each once, with the candidates that are in it.
fn stories(
    reader: &mut Reader<'_>,
    candidates: &[Candidate],
) -> Result<Vec<(Vec<Identifier>, Closure)>, SourceError> {
    let mut stories: Vec<(Vec<Identifier>, Closure)> = Vec::new();
    for candidate in candidates {
        let id = &candidate.identifier;
        if let Some((starts, _)) = stories.iter_mut().find(|(_, closure)| closure.mentions(id)) {
            starts.push(id.clone());
            continue;
        }
        let closure = reader.close(id)?;
        if closure.members.is_empty() {
            continue;
        }
        // Following is not symmetric: a delivery may lead to what did not lead to it.
        let mut starts = vec![id.clone()];
        stories.retain_mut(|(earlier, _)| {
            let inside = earlier.iter().all(|id| closure.mentions(id));
            if inside {
                starts.append(earlier);
            }
            !inside
        });
        stories.push((starts, closure));
    }
    Ok(stories)
}

fn shown(start: &[Identifier], closure: &Closure, candidates: &[Candidate]) -> CandidateView {
    let of = candidates
        .iter()
        .find(|c| Some(&c.identifier) == start.first());
    let told = of
        .and_then(|c| closure.members.get(&c.first))
        .or(closure.members.values().next());
    CandidateView {
        identifier: start.first().map_or_else(
            || IdentifierView {
                kind: String::new(),
                scope: String::new(),
                value: String::new(),
            },
            IdentifierView::from,
        ),
        frames: of.map_or(0, |c| c.frames),
        first: of.map_or(0, |c| c.first.0),
        last: of.map_or(0, |c| c.last.0),
        about: told.map_or_else(String::new, |m| line(&m.frame, Frames(&[]), None, &[]).text),
    }
}

fn not_found(query: &Query, source: &dyn Source) -> NotFound {
    let kinds = match query.kind {
        Some(kind) => vec![kind.as_str().to_owned()],
        None => TABLE.iter().map(|row| row.name.to_owned()).collect(),
    };
    NotFound {
        version: JSON_VERSION,
        tried: query.values.clone(),
        kinds,
        scope: query.scope.clone(),
        range: RangeView::from(source.extent()),
    }
}
