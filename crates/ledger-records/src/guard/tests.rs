//! Shapes that the guard must refuse, and such that it must let pass. The secrets here are made up; those whose shape
//! scanners know are put together from parts, so that the repository holds none in one piece.

use super::{SecretKind, scan, scan_header, scan_parameter, scan_route};
use SecretKind as S;

/// A made-up tail of letters and digits.
fn tail(len: usize) -> String {
    "a8Kd02LmQz7Xw4Rt9Yb3Nc6Vf1Hj5GsPeUoIiTqWx2Ez0Mn8Bv4Ck6Dl1Jh3Fg5"
        .chars()
        .take(len)
        .collect()
}

fn hex(len: usize) -> String {
    "9f2c1a7e03bd41d7c0b36a9155aa0c11e8f7d6c5b4a39281706f5e4d3c2b1a09"
        .chars()
        .take(len)
        .collect()
}

fn secrets() -> Vec<(SecretKind, String)> {
    let t = tail;
    let jwt = format!(
        "{}.{}.{}",
        "eyJhbGciOiJIUzI1NiJ9",
        "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
        t(43)
    );
    vec![
        (S::BearerToken, format!("Bearer {}", t(32))),
        (S::BearerToken, "sent with bearer abc12345 twice".into()),
        (S::BearerToken, format!("Authorization: BEARER  {}", t(20))),
        (S::BasicCredentials, "Basic dXNlcjpwYXNzd29yZA==".into()),
        (
            S::BasicCredentials,
            "authorization: basic YWRtaW46aHVudGVyMg".into(),
        ),
        (S::PrivateKey, format!("-----BEGIN {}PRIVATE KEY-----", "")),
        (
            S::PrivateKey,
            format!("x -----BEGIN {} KEY-----\\nMIIE", "RSA PRIVATE"),
        ),
        (
            S::PrivateKey,
            format!("-----BEGIN OPENSSH {}-----", "PRIVATE KEY"),
        ),
        (
            S::PrivateKey,
            format!("AGE-SECRET-{}1{}", "KEY-", t(58).to_uppercase()),
        ),
        (
            S::PrivateKey,
            format!("AGE-PLUGIN-YUBIKEY-1{}", t(30).to_uppercase()),
        ),
        (S::Jwt, jwt.clone()),
        (S::Jwt, format!("assertion was {jwt}")),
        (S::ProviderToken, format!("ghp_{}", t(36))),
        (S::ProviderToken, format!("gho_{}", t(36))),
        (S::ProviderToken, format!("ghs_{}", t(36))),
        (S::ProviderToken, format!("github_pat_{}_{}", t(22), t(59))),
        (S::ProviderToken, format!("glpat-{}", t(20))),
        (
            S::ProviderToken,
            format!("xoxb-{}-{}", "123456789012", t(24)),
        ),
        (
            S::ProviderToken,
            format!("xoxp-{}-{}", "123456789012", t(24)),
        ),
        (S::ProviderToken, format!("xapp-1-{}", t(24))),
        (S::ProviderToken, format!("sk_live_{}", t(24))),
        (S::ProviderToken, format!("rk_live_{}", t(24))),
        (S::SigningSecret, format!("whsec_{}", t(32))),
        (S::CloudKey, format!("AKIA{}", "IOSFODNN7EXAMPLE")),
        (S::CloudKey, format!("ASIA{}", "IOSFODNN7EXAMPLE")),
        (
            S::CloudKey,
            format!("wJalrXUtnFEMI/{}", "K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ),
        (
            S::SensitiveValue,
            format!("aws_secret_access_key={}", t(40)),
        ),
        (S::ProviderToken, format!("AIza{}", t(35))),
        (S::ProviderToken, format!("ya29.{}", t(40))),
        (S::ProviderToken, format!("sk-{}", t(48))),
        (S::ProviderToken, format!("sk-proj-{}", t(48))),
        (S::ProviderToken, format!("sk-ant-api03-{}", t(48))),
        (S::ProviderToken, format!("npm_{}", t(36))),
        (S::ProviderToken, format!("pypi-AgEIcHlwaS5vcmc{}", t(40))),
        (S::ProviderToken, format!("SG.{}.{}", t(22), t(43))),
        (S::ProviderToken, format!("SK{}", hex(32))),
        (S::ProviderToken, format!("dop_v1_{}", hex(64))),
        (
            S::SensitiveValue,
            format!("https://a.blob.example/c?sv=2022&sig={}", t(30)),
        ),
        (
            S::ProviderToken,
            format!("{}:{}", "110201543", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_"),
        ),
        (
            S::ProviderToken,
            format!(
                "{}.{}.{}",
                "MTk4NjIyNDgzNDcxOTI1MjQ4", "Cl2FMQ", "ZnCjm1XVW7vRze4b7Cq4se7kKWs"
            ),
        ),
        (
            S::EndpointToken,
            format!(
                "https://discord.com/api/webhooks/{}/{}",
                "881234567890123456",
                t(60)
            ),
        ),
        (
            S::EndpointToken,
            format!(
                "https://hooks.slack.com/services/{}/{}/{}",
                "T00000000",
                "B00000000",
                t(24)
            ),
        ),
        (S::UrlUserinfo, "https://alice:hunter2@example.com/x".into()),
        (S::UrlUserinfo, "postgres://app:pw@db/ledger".into()),
        (
            S::UrlUserinfo,
            format!("clone https://{}@git.example.com/a.git", t(20)),
        ),
        (
            S::SensitiveValue,
            "https://x.example/cb?code=4f2a91&state=x".into(),
        ),
        (S::SensitiveValue, "/cb?access_token=abc".into()),
        (S::SensitiveValue, "/cb#id_token=abc".into()),
        (S::SensitiveValue, "GET /v1?page=2&API_KEY=1234".into()),
        (
            S::SensitiveValue,
            "login failed with password=hunter2".into(),
        ),
        (S::SensitiveValue, r#"{"client_secret":"q1w2e3r4"}"#.into()),
        (S::SensitiveValue, "password: hunter22".into()),
        (S::ProviderToken, format!("key_ghp_{}", t(36))),
        (S::ProviderToken, format!("shpat_{}", hex(32))),
        (S::ProviderToken, format!("hf_{}", t(34))),
    ]
}

const HARMLESS: [&str; 62] = [
    "act_01JDZK5T8W3QJ7Y6M4N2R0C9XA",
    "01JDZK5T8W3QJ7Y6M4N2R0C9XA",
    "550e8400-e29b-41d4-a716-446655440000",
    "550E8400-E29B-41D4-A716-446655440000",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "the token has expired and a new one was asked for",
    "token: refused by the provider",
    "bearer token expired",
    "Bearer authentication failed",
    "basic authentication is switched off",
    "Basic understanding of the case",
    "secret: none was found",
    "the secret was rotated on Monday",
    "password reset requested by oncall@example.com",
    "oncall@example.com",
    "ssh://git@github.example.com/a/b.git",
    "git@github.example.com:a/b.git",
    "https://builds.example.com/v1/builds/4711",
    "https://x.example/cb?page=2&per_page=100",
    "https://x.example/cb?token={token}",
    "https://x.example/cb?sig=[redacted]",
    "https://x.example/cb?code=",
    "/in/{endpoint_token}",
    "status code=404 from the provider",
    "signature=good",
    "state=confirmed",
    "key=b",
    "t=1796047651,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd",
    "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "evt_1MtwBwLkdIwHu7ix28a3tqPa",
    "pi_3MtwBwLkdIwHu7ix0SN0C8Xv",
    "cus_NffrFeUfNV2Hib",
    "op_9f2",
    "idem_44",
    "sk-build",
    "task-scheduler-2026-11-30-run-000000000001",
    "risk-assessment-of-the-year-2026-for-production",
    "sk-learn-pipeline-number-2026-of-many-more",
    "SKU12345678901234567890123456789012",
    "SK-2026-000123",
    "npm_config_registry",
    "whsec_label",
    "xoxo-greetings",
    "eyJust a word",
    "AKIAK is a name",
    "SG.1.2",
    "PRIVATE KEY rotation took place",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kdg0stpuq4fupqn",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3Zp",
    "repos/Org1/Project/issues/42/comments/99x",
    "arn:aws:iam::123456789012:role/ReadOnly",
    "2026-11-30T14:07:41.123456789Z",
    "12345678:30",
    "mcp://tools/build.start@v2",
];

#[test]
fn secrets_are_found_and_named_for_what_they_are() {
    assert!(secrets().len() >= 40);
    for (kind, text) in secrets() {
        assert_eq!(scan(&text), Some(kind), "{text}");
        let inside = format!("seen: ({text}) once");
        assert!(scan(&inside).is_some(), "{inside}");
    }
}

#[test]
fn harmless_text_passes() {
    for text in HARMLESS {
        assert_eq!(scan(text), None, "{text}");
    }
}

#[test]
fn credential_headers_are_refused_by_name() {
    for name in [
        "Authorization",
        "proxy-authorization",
        "COOKIE",
        "Set-Cookie",
        "X-Api-Key",
        "X-Gitlab-Token",
        "X-Telegram-Bot-Api-Secret-Token",
        "X-Amz-Security-Token",
        "X-Acme-Secret",
        "X-Session-Token",
    ] {
        assert_eq!(scan_header(name), Some(S::CredentialHeader), "{name}");
    }
    for name in [
        "Content-Type",
        "User-Agent",
        "X-Hub-Signature-256",
        "Stripe-Signature",
        "webhook-id",
        "webhook-timestamp",
        "X-GitHub-Delivery",
        "Idempotency-Key",
        "traceparent",
        "Date",
    ] {
        assert_eq!(scan_header(name), None, "{name}");
    }
}

#[test]
fn parameters_are_refused_by_name_or_value() {
    for name in [
        "token",
        "SIG",
        "code",
        "api_key",
        "password",
        "X-Amz-Signature",
        "key",
    ] {
        assert_eq!(
            scan_parameter(name, "abc"),
            Some(S::SensitiveValue),
            "{name}"
        );
        assert_eq!(scan_parameter(name, "[redacted]"), None, "{name}");
    }
    assert_eq!(scan_parameter("page", "2"), None);
    assert_eq!(
        scan_parameter("page", &format!("ghp_{}", tail(36))),
        Some(S::ProviderToken)
    );
}

#[test]
fn random_segments_are_endpoint_tokens_in_routes_only() {
    let token = tail(32);
    assert_eq!(scan_route(&format!("/in/{token}")), Some(S::EndpointToken));
    assert_eq!(scan(&format!("/in/{token}")), None);
    for route in [
        "/v1/builds/{id}",
        "/repos/{owner}/{repo}/actions/workflows",
        "/v1/da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "/v1/550e8400-e29b-41d4-a716-446655440000",
        "/v1/01JDZK5T8W3QJ7Y6M4N2R0C9XA",
        "/services/GetCustomerOrderHistoryV2Summary",
    ] {
        assert_eq!(scan_route(route), None, "{route}");
    }
}

#[test]
fn nothing_panics_on_odd_bytes() {
    for text in [
        "://",
        "://@",
        "=",
        "&=",
        "?sig=",
        ":",
        "Bearer ",
        "Basic ",
        "eyJ",
        "eyJ.",
        "SG.",
        "SG..",
        "--",
        "\u{e9}=\u{e9}@:",
    ] {
        for pad in ["", "x", "\u{20ac}", "        "] {
            let _ = scan(&format!("{pad}{text}"));
            let _ = scan(&format!("{text}{pad}{text}"));
        }
    }
}
