//! The projection of a record: the identifiers that it is found by, and the facts that rules, conditions and flags
//! read. Everything else stays in the body. Implements ledger-format.md, "Envelope plaintext": whoever holds the body
//! computes the same envelope.

mod rows;

use std::borrow::Cow;

use crate::identifiers::{IdKind, IdentifierRef, Relation};
use crate::record::Record;
use crate::text::{Id, Label, Time};
use crate::types::{BusinessKey, BusinessObject, DecidedBy, Grant, Ref, RuleRef, Target};

use IdKind as K;
use Relation as R;

/// The value of a fact while it is projected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactRef<'a> {
    Uint(u64),
    Int(i64),
    Text(Cow<'a, str>),
    Bool(bool),
    Texts(Vec<Cow<'a, str>>),
}

/// Where a projection goes: only identifiers, or both.
pub(crate) struct Projection<'a> {
    pub(crate) identifiers: Vec<IdentifierRef<'a>>,
    pub(crate) facts: Vec<(&'static str, FactRef<'a>)>,
}

impl<'a> Projection<'a> {
    fn id(&mut self, relation: Relation, kind: IdKind, value: &'a Id) {
        self.scoped(relation, kind, "", value);
    }

    fn id_if(&mut self, relation: Relation, kind: IdKind, value: &'a Option<Id>) {
        if let Some(value) = value {
            self.id(relation, kind, value);
        }
    }

    fn scoped(&mut self, relation: Relation, kind: IdKind, scope: &'a str, value: &'a Id) {
        self.push(
            relation,
            kind,
            Cow::Borrowed(scope),
            Cow::Borrowed(value.as_str()),
        );
    }

    /// An id of a provider; the types require the provider's name where one is given.
    fn of_provider(
        &mut self,
        relation: Relation,
        kind: IdKind,
        provider: Option<&'a Label>,
        value: &'a Option<Id>,
    ) {
        if let (Some(provider), Some(value)) = (provider, value) {
            self.scoped(relation, kind, provider.as_str(), value);
        }
    }

    fn push(&mut self, relation: Relation, kind: IdKind, scope: Cow<'a, str>, value: Cow<'a, str>) {
        self.identifiers.push(IdentifierRef {
            kind,
            relation,
            scope,
            value,
        });
    }

    fn refs(&mut self, relation: Relation, refs: &'a [Ref]) {
        for item in refs {
            let (kind, value) = (item.id_kind(), Cow::Borrowed(item.value.as_str()));
            let scope = item.scope.as_ref().map_or("", Label::as_str);
            let scope = match (kind, scope) {
                (IdKind::Other, "") => Cow::Borrowed(item.kind.as_str()),
                (IdKind::Other, scope) => Cow::Owned(format!("{}/{scope}", item.kind)),
                (_, scope) => Cow::Borrowed(scope),
            };
            self.push(relation, kind, scope, value);
        }
    }

    fn business_key(&mut self, relation: Relation, key: &'a Option<BusinessKey>) {
        if let Some(key) = key {
            let mut value = escape(key.object.as_str());
            if let Some(version) = &key.version {
                value = Cow::Owned(format!("{value}/{}", escape(version.as_str())));
            }
            self.push(
                relation,
                IdKind::BusinessKey,
                Cow::Borrowed(key.operation.as_str()),
                value,
            );
        }
    }

    fn business_object(&mut self, relation: Relation, object: &'a Option<BusinessObject>) {
        if let Some(object) = object {
            let system = object.system.as_ref().map_or("", Label::as_str);
            self.scoped(relation, IdKind::BusinessObject, system, &object.id);
            self.text_if("object_version", &object.version);
        }
    }

    fn fact(&mut self, name: &'static str, value: FactRef<'a>) {
        self.facts.push((name, value));
    }

    fn text(&mut self, name: &'static str, value: &'a str) {
        self.fact(name, FactRef::Text(Cow::Borrowed(value)));
    }

    fn text_if(&mut self, name: &'static str, value: &'a Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.text(name, value.as_ref());
        }
    }

    fn uint_if(&mut self, name: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.fact(name, FactRef::Uint(value));
        }
    }

    fn bool_if(&mut self, name: &'static str, value: Option<bool>) {
        if let Some(value) = value {
            self.fact(name, FactRef::Bool(value));
        }
    }

    /// An array, left out when it is empty.
    fn texts(&mut self, name: &'static str, values: impl Iterator<Item = &'a str>) {
        let values: Vec<_> = values.map(Cow::Borrowed).collect();
        if !values.is_empty() {
            self.fact(name, FactRef::Texts(values));
        }
    }

    fn rules(&mut self, rules: Option<&'a RuleRef>) {
        if let Some(rules) = rules {
            self.push(R::Under, K::RuleSet, "".into(), rules.name.as_str().into());
            self.text("rules_version", rules.version.as_str());
        }
    }

    fn decided(&mut self, by: &'a DecidedBy, at: &'a Time) {
        self.id(R::By, K::Actor, &by.actor);
        self.fact("decided_by_person", FactRef::Bool(by.person));
        self.text("decided_at", at.as_str());
    }

    fn target(&mut self, target: &'a Target) {
        self.text("target_kind", target.name());
        match target {
            Target::Http(http) => {
                self.text("target_host", http.host.as_str());
                self.text("target_method", http.method.as_str());
                self.text("target_route", http.route_template.as_str());
                self.text_if("target_id", &http.target_id);
            }
            Target::Command(command) => {
                self.text("target_host", command.host.as_str());
                self.text("target_command", command.command_template.as_str());
                self.text_if("target_id", &command.target_id);
            }
        }
    }

    fn grant(&mut self, grant: &'a Grant) {
        self.id(R::Under, K::Grant, &grant.grant_id);
        self.text_if("grant_tenant", &grant.tenant);
        self.text_if("grant_expires_at", &grant.expires_at);
        self.texts(
            "grant_operations",
            grant.operations.iter().map(Label::as_str),
        );
    }
}

/// Two parts of a business key meet at a slash, so a slash inside one is escaped.
fn escape(part: &str) -> Cow<'_, str> {
    if part.contains(['/', '%']) {
        Cow::Owned(part.replace('%', "%25").replace('/', "%2F"))
    } else {
        Cow::Borrowed(part)
    }
}

/// Projects a record.
pub(crate) fn projection(record: &Record) -> Projection<'_> {
    let mut out = Projection {
        identifiers: Vec::with_capacity(12),
        facts: Vec::with_capacity(16),
    };
    match record {
        Record::Run(record) => rows::run(record, &mut out),
        Record::Action(record) => rows::action(record, &mut out),
        Record::Attempt(record) => rows::attempt(record, &mut out),
        Record::RemoteRef(record) => rows::remote_ref(record, &mut out),
        Record::Receipt(record) => rows::receipt(record, &mut out),
        Record::Verification(record) => rows::verification(record, &mut out),
        Record::Correlation(record) => rows::correlation(record, &mut out),
        Record::StateTransition(record) => rows::state_transition(record, &mut out),
        Record::StatusLookup(record) => rows::status_lookup(record, &mut out),
        Record::Processing(record) => rows::processing(record, &mut out),
        Record::Memory(record) => rows::memory(record, &mut out),
        Record::Rules(record) => rows::rules(record, &mut out),
        Record::Exception(record) => rows::exception(record, &mut out),
    }
    out.refs(R::Refs, record.refs());
    out.text_if("source", record.source_field());
    out.facts
        .sort_unstable_by(|a, b| a.0.len().cmp(&b.0.len()).then(a.0.cmp(b.0)));
    out
}
