//! The record that every load writes, the same one as a journal entry, and the story to be traced.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ledger_records::types::RemoteRef;
use ledger_records::{Id, Label, Record, Time};

/// The identifier that joins the story's records.
pub(crate) const STORY_ACTION: &str = "act_story";
pub(crate) const STORY_RECORDS: u64 = 20;
/// Three records a try, and one each before and behind them.
const STORY_TRIES: u64 = (STORY_RECORDS - 2) / 3;

const PROVIDER: &str = "builds.example.com";
const OBSERVED_AT: &str = "2026-11-30T14:03:07Z";

/// Fields of one remote_ref record: the ids an agent's call leaves behind, about 260 bytes of JSON.
pub(crate) struct Fields {
    run: u64,
    thread: u32,
    number: u64,
}

impl Fields {
    /// `run` tells processes apart: record ids are unique in a ledger.
    pub(crate) const fn new(run: u64, thread: u32, number: u64) -> Self {
        Self {
            run,
            thread,
            number,
        }
    }

    /// What every id of this record ends in.
    fn unique(&self) -> String {
        format!("{:012x}{:03}{:09}", self.run, self.thread, self.number)
    }

    /// The record as a service in Rust builds it: every text is checked and passes the secret guard.
    pub(crate) fn record(&self) -> Result<Record> {
        let unique = self.unique();
        let id = |prefix: &str| Id::new(format!("{prefix}_{unique}"));
        Ok(Record::RemoteRef(RemoteRef {
            record_id: id("rec")?,
            source: None,
            action_id: id("act")?,
            attempt_id: Some(id("out")?),
            status_lookup: None,
            provider: Label::new(PROVIDER)?,
            account: None,
            remote_operation_id: Some(id("op")?),
            remote_object_id: None,
            object_type: None,
            found_in: None,
            observed_at: Time::new(OBSERVED_AT)?,
            refs: Vec::new(),
        }))
    }

    /// The record as a client sends it.
    pub(crate) fn json(&self) -> String {
        let unique = self.unique();
        format!(
            r#"{{"type":"remote_ref","record_id":"rec_{unique}","action_id":"act_{unique}","attempt_id":"out_{unique}","provider":"{PROVIDER}","remote_operation_id":"op_{unique}","observed_at":"{OBSERVED_AT}"}}"#
        )
    }

    /// The record as an entry of the journal export format: the same fields, one each, and the
    /// times that the format demands; a `whole` one as the journal holds what a service logged.
    pub(crate) fn journal_entry(&self, whole: bool) -> String {
        let at = 1_764_500_000_000_000 + self.number * 1_000;
        let mut text = format!(
            "__REALTIME_TIMESTAMP={at}\n__MONOTONIC_TIMESTAMP={}\n_BOOT_ID=0123456789abcdef0123456789abcdef\n",
            1_000_000 + self.number * 1_000
        );
        let unique = self.unique();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "TYPE=remote_ref\nRECORD_ID=rec_{unique}\nACTION_ID=act_{unique}\nATTEMPT_ID=out_{unique}\nPROVIDER={PROVIDER}\nREMOTE_OPERATION_ID=op_{unique}\nOBSERVED_AT={OBSERVED_AT}\n"
        );
        if whole {
            let _ = writeln!(text, "MESSAGE=remote_ref rec_{unique}");
            let _ = writeln!(text, "_SOURCE_REALTIME_TIMESTAMP={}", at - 20);
            text.push_str(SERVICE_FIELDS);
        }
        text.push('\n');
        text
    }
}

/// What journald and `sd_journal_send` add to an entry of a service (systemd.journal-fields(7)).
const SERVICE_FIELDS: &str = "PRIORITY=6
SYSLOG_IDENTIFIER=agent
CODE_FILE=src/append.rs
CODE_LINE=120
CODE_FUNC=append
_TRANSPORT=journal
_PID=4711
_UID=1001
_GID=1001
_COMM=agent
_EXE=/usr/bin/agent
_CMDLINE=/usr/bin/agent --config /etc/agent.toml
_CAP_EFFECTIVE=0
_SYSTEMD_CGROUP=/system.slice/agent.service
_SYSTEMD_UNIT=agent.service
_SYSTEMD_SLICE=system.slice
_SYSTEMD_INVOCATION_ID=fedcba9876543210fedcba9876543210
_MACHINE_ID=00112233445566778899aabbccddeeff
_HOSTNAME=build-agent
_RUNTIME_SCOPE=system
";

/// An approved action, six tries of it, each with its outcome and the provider's operation, and what
/// the work came to: JSON text, in the order of what happened.
pub(crate) fn story() -> Vec<String> {
    let mut records = vec![format!(
        r#"{{"type":"action","record_id":"rec_story_action","action_id":"{STORY_ACTION}","actor":"build-agent","tenant":"acme","operation":"build.start","target":{{"kind":"http","host":"{PROVIDER}","route_template":"/v1/builds","method":"POST"}},"provider":"{PROVIDER}","scope":"production","authorization":{{"decision":"approved","approver":"oncall@example.com","approved_at":"2026-11-30T14:03:00Z","grant_id":"build:start","credential_label":"ci-prod-2"}},"idempotency_ref":"idem_story","workflow_id":"wf_story","requested_at":"2026-11-30T14:03:01Z"}}"#
    )];
    for number in 1..=STORY_TRIES {
        let cause = if number == 1 {
            "initial"
        } else {
            "client_retry"
        };
        let outcome =
            format!(r#"{{"kind":"response","status":202,"received_at":"{OBSERVED_AT}"}}"#);
        for (which, outcome) in [("sent", r#"{"kind":"pending"}"#), ("answered", &outcome)] {
            records.push(format!(
                r#"{{"type":"attempt","record_id":"rec_story_{which}_{number}","attempt_id":"out_story_{number}","action_id":"{STORY_ACTION}","idempotency_ref":"idem_story","cause":"{cause}","request":{{"length":212}},"credential_label":"ci-prod-2","sent_at":"2026-11-30T14:03:06Z","outcome":{outcome}}}"#
            ));
        }
        records.push(format!(
            r#"{{"type":"remote_ref","record_id":"rec_story_ref_{number}","action_id":"{STORY_ACTION}","attempt_id":"out_story_{number}","provider":"{PROVIDER}","remote_operation_id":"op_story","observed_at":"{OBSERVED_AT}"}}"#
        ));
    }
    records.push(format!(
        r#"{{"type":"state_transition","record_id":"rec_story_state","workflow_id":"wf_story","action_id":"{STORY_ACTION}","from":"requested","to":"submitted","rule":"build.accepted","rules":{{"name":"workflow","version":"3"}},"evidence":[{{"kind":"attempt_id","value":"out_story_1"}}],"conflict":false,"decided_by":{{"actor":"workflow-engine","person":false}},"decided_at":"2026-11-30T14:03:08Z"}}"#
    ));
    records
}

/// A number that no earlier process of the benchmark had.
pub(crate) fn run_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_micros() as u64) & 0xFFFF_FFFF_FFFF
}
