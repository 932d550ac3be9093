//! Reading an envelope: which identifier plays which part, and facts by name.
//! Not a second projection: what a member means is `ledger-records`' to say.

use ledger_format::Seq;
use ledger_records::{
    Envelope, EnvelopeIdentifier, Fact, IdKind, Identifier, RecordType, Relation,
};

use crate::source::FrameView;

/// Short ways into one envelope.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a>(pub(crate) &'a Envelope);

impl<'a> Facts<'a> {
    /// The first identifier of this kind in this part.
    pub(crate) fn id(self, relation: Relation, kind: IdKind) -> Option<&'a str> {
        self.ids(relation, kind).next()
    }

    /// All identifiers of this kind in this part.
    pub(crate) fn ids(self, relation: Relation, kind: IdKind) -> impl Iterator<Item = &'a str> {
        let fits = move |item: &&EnvelopeIdentifier| {
            item.relation == relation && item.identifier.kind == kind
        };
        let of = |item: &'a EnvelopeIdentifier| item.identifier.value.as_str();
        self.0.identifiers.iter().filter(fits).map(of)
    }

    /// All identifiers of a part, of whatever kind.
    pub(crate) fn part(self, relation: Relation) -> impl Iterator<Item = &'a Identifier> {
        let of = |item: &'a EnvelopeIdentifier| &item.identifier;
        self.0
            .identifiers
            .iter()
            .filter(move |item| item.relation == relation)
            .map(of)
    }

    /// What the record tells of.
    pub(crate) fn subject(self) -> Option<&'a str> {
        self.part(Relation::Subject)
            .next()
            .map(|id| id.value.as_str())
    }

    pub(crate) fn text(self, name: &str) -> Option<&'a str> {
        self.0.fact(name).and_then(Fact::as_text)
    }

    pub(crate) fn uint(self, name: &str) -> Option<u64> {
        self.0.fact(name).and_then(Fact::as_uint)
    }

    pub(crate) fn flag(self, name: &str) -> Option<bool> {
        match self.0.fact(name) {
            Some(Fact::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    /// An array of texts; empty where there is none.
    pub(crate) fn texts(self, name: &str) -> &'a [String] {
        match self.0.fact(name) {
            Some(Fact::Texts(values)) => values,
            _ => &[],
        }
    }

    /// The source's own time of what it tells, as it wrote it: never the writer's.
    pub(crate) fn own_time(self) -> Option<&'a str> {
        let names: &[&str] = match self.0.record_type {
            RecordType::Run => &["ended_at", "started_at"],
            RecordType::Action => &["requested_at"],
            RecordType::Attempt => &["observed_at", "sent_at"],
            RecordType::RemoteRef | RecordType::Processing => &["observed_at"],
            RecordType::Receipt => &["received_at"],
            RecordType::Verification => &["verified_at"],
            RecordType::Correlation | RecordType::StateTransition => &["decided_at"],
            RecordType::StatusLookup => &["answered_at", "asked_at"],
            RecordType::Memory => &["stored_at"],
            RecordType::Rules => &["declared_at"],
            RecordType::Exception => &["decided_at", "detected_at"],
        };
        names.iter().find_map(|name| self.text(name))
    }
}

/// The frames of a story in chain order, and ways through them.
#[derive(Clone, Copy)]
pub(crate) struct Frames<'a>(pub(crate) &'a [FrameView]);

impl<'a> Frames<'a> {
    /// The frames of one type.
    pub(crate) fn of(self, record_type: RecordType) -> impl Iterator<Item = (Seq, Facts<'a>)> {
        let fits = move |frame: &&FrameView| frame.envelope.record_type == record_type;
        self.0
            .iter()
            .filter(fits)
            .map(|frame| (frame.seq, Facts(&frame.envelope)))
    }

    /// The verifications of a delivery.
    pub(crate) fn verifications(self, receipt: &str) -> impl Iterator<Item = (Seq, Facts<'a>)> {
        self.of(RecordType::Verification)
            .filter(move |(_, f)| f.id(Relation::Subject, IdKind::ReceiptId) == Some(receipt))
    }

    /// Whether some verification accepted a delivery.
    pub(crate) fn is_accepted(self, receipt: &str) -> bool {
        self.verifications(receipt)
            .any(|(_, f)| f.text("decision") == Some("accepted"))
    }

    /// The frame of a record, by the record's id.
    pub(crate) fn record(self, record_id: &str) -> Option<&'a FrameView> {
        self.0
            .iter()
            .find(|frame| frame.envelope.record_id == record_id)
    }
}
