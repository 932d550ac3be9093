//! What may be missing or contradict in a story: the list of codes. Codes are stable: scripts and people cite them.
//! When one applies is judged in `judge`.

use std::borrow::Cow;

use ledger_format::Seq;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Two records, or a record and a rule, cannot both be right; or an effect may have happened twice.
    Contradiction,
    /// Something that should follow is not there.
    Gap,
    /// Worth knowing, and no fault.
    Note,
}

impl Class {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contradiction => "contradiction",
            Self::Gap => "gap",
            Self::Note => "note",
        }
    }
}

macro_rules! codes {
    ($( $variant:ident $name:literal $class:ident $meaning:literal; )*) => {
        /// What a finding is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingCode { $( #[doc = $meaning] $variant, )* }

        impl FindingCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// How grave it is.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $( Self::$variant => Class::$class, )* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$variant => $meaning, )* }
            }
        }
    };
}

codes! {
    ActionNotRecorded "action_not_recorded" Gap "Something was sent or joined for an action that no record tells of.";
    AttemptNotAllowed "attempt_not_allowed" Contradiction "Something was sent although the action was refused or not decided yet.";
    AttemptAfterExpiry "attempt_after_expiry" Contradiction "Something was sent after the permission had ended.";
    AttemptWithoutOutcome "attempt_without_outcome" Gap "A transmission was begun and nothing says what became of it.";
    AttemptTimeoutUnresolved "attempt_timeout_unresolved" Gap "A transmission whose outcome is unknown was never looked up at the provider with a usable answer.";
    AcceptanceWithoutRemoteRef "acceptance_without_remote_ref" Gap "The provider took the work, and no id of it was recorded.";
    IdempotencyRefShared "idempotency_ref_shared" Contradiction "One idempotency reference was used for two actions: the provider may have merged them.";
    IdempotencyRefsDiffer "idempotency_refs_differ" Contradiction "One action was sent with two idempotency references: it may have been done twice.";
    IdempotencyRefMissing "idempotency_ref_missing" Gap "A repeat was sent without an idempotency reference: it may have been done twice.";
    RemoteObjectsExceeded "remote_objects_exceeded" Contradiction "The provider named more operations for one action than the action expects.";
    CallbackBeforeResponse "callback_before_response" Note "A callback was received before the answer to the transmission was recorded.";
    ReceiptNotRecorded "receipt_not_recorded" Gap "A delivery is cited that no record tells of.";
    ReceiptUnverified "receipt_unverified" Gap "A delivery was received and nothing says whether it was believed.";
    VerificationsDiffer "verifications_differ" Contradiction "The same event of one delivery was accepted and rejected.";
    EventConflict "event_conflict" Contradiction "An event id came back with other content.";
    AcceptedUncorrelated "accepted_uncorrelated" Gap "A delivery was accepted, and nothing was joined to it or started by it.";
    RefusedDeliveryUsed "refused_delivery_used" Contradiction "Something rests on a delivery that was not accepted.";
    ProcessedBeforeVerification "processed_before_verification" Contradiction "Work on a delivery began before it was verified.";
    DuplicateProcessed "duplicate_processed" Contradiction "Work was done on a delivery that is a duplicate.";
    EffectTwice "effect_twice" Contradiction "An effect that must happen only once was completed by two jobs.";
    ProcessingWithoutOutcome "processing_without_outcome" Gap "Work was handed out and nothing says what became of it.";
    CorrelationWithoutTransition "correlation_without_transition" Gap "A join was made, and no change of state rests on it.";
    TransitionWithoutEvidence "transition_without_evidence" Contradiction "A final outcome was recorded without a verified delivery or an authenticated look-up behind it.";
    StatesDisagree "states_disagree" Contradiction "A change of state begins from another state than the one recorded before.";
    TerminalOverwritten "terminal_overwritten" Contradiction "A final state was changed, and not by a person.";
    TransitionAgainstEvidence "transition_against_evidence" Contradiction "A change of state says itself that evidence contradicts it.";
    LateContradiction "late_contradiction" Contradiction "Evidence behind a final state says the opposite, and no exception keeps it.";
    ContradictionOpen "contradiction_open" Contradiction "A recorded contradiction that nobody has decided.";
    ExceptionOpen "exception_open" Gap "A recorded exception that nobody has decided.";
    ExceptionResolved "exception_resolved" Note "A recorded exception that a person has decided.";
    OutcomeOpen "outcome_open" Gap "Nothing has confirmed or failed it yet.";
    NoStateRecorded "no_state_recorded" Gap "Something was sent, and no record says what state the work is in.";
    EnvelopeDiffers "envelope_differs" Contradiction "What the writer's index says of a record is not what the record says.";
    BodyUnopened "body_unopened" Gap "Evidence that should open with the key at hand does not.";
    NotCovered "not_covered" Note "Frames that no signed checkpoint covers yet.";
    TenantsMixed "tenants_mixed" Note "The story spans several tenants.";
}

impl Serialize for FindingCode {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FindingCode {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(input)?;
        let found = Self::ALL.iter().find(|code| code.as_str() == name);
        found
            .copied()
            .ok_or_else(|| serde::de::Error::custom("a code that this program does not know"))
    }
}

impl JsonSchema for FindingCode {
    fn schema_name() -> Cow<'static, str> {
        "FindingCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let variants: Vec<_> = Self::ALL
            .iter()
            .map(
                |code| serde_json::json!({ "const": code.as_str(), "description": code.meaning() }),
            )
            .collect();
        json_schema!({ "description": "What a finding is about.", "oneOf": variants })
    }
}

/// Something that is missing or contradicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What it is about.
    pub code: FindingCode,
    /// How grave it is.
    pub class: Class,
    /// What is so here, in a sentence.
    pub text: String,
    /// The frames that show it, in chain order.
    pub frames: Vec<u64>,
}

impl Finding {
    pub(crate) fn new(
        code: FindingCode,
        text: String,
        frames: impl IntoIterator<Item = Seq>,
    ) -> Self {
        let mut frames: Vec<u64> = frames.into_iter().map(|seq| seq.0).collect();
        frames.sort_unstable();
        frames.dedup();
        Self {
            code,
            class: code.class(),
            text,
            frames,
        }
    }

    /// Whether it is a contradiction.
    #[must_use]
    pub fn is_contradiction(&self) -> bool {
        self.class == Class::Contradiction
    }

    /// Whether a line of the story itself says it: the record of an exception.
    pub(crate) const fn is_line(&self) -> bool {
        matches!(
            self.code,
            FindingCode::ContradictionOpen
                | FindingCode::ExceptionOpen
                | FindingCode::ExceptionResolved
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_explained() {
        let names: std::collections::BTreeSet<_> =
            FindingCode::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), FindingCode::ALL.len());
        for code in FindingCode::ALL {
            assert!(
                code.meaning().ends_with('.') && code.meaning().is_ascii(),
                "{}",
                code.as_str()
            );
        }
    }
}
