//! The secret guard: refuses what looks like a credential, before it is stored or printed.
//! Not a proof of absence: a password that looks like a word passes. Shapes only; no entropy scan of ordinary text, so
//! that ids, digests and prose are never refused.

mod names;
mod shapes;
#[cfg(test)]
mod tests;

pub use names::{scan_header, scan_parameter};

/// What a suspected secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretKind {
    /// A header that carries credentials.
    CredentialHeader,
    /// `Bearer` and a token.
    BearerToken,
    /// `Basic` and a user with password.
    BasicCredentials,
    /// A private key in PEM, or of age.
    PrivateKey,
    /// A JSON Web Token.
    Jwt,
    /// A token of a known provider, by its shape.
    ProviderToken,
    /// A secret access key of a cloud, by its shape or name.
    CloudKey,
    /// A secret for signing webhooks.
    SigningSecret,
    /// A user or password in a URL.
    UrlUserinfo,
    /// A query parameter or assignment of a sensitive name.
    SensitiveValue,
    /// A URL or path that gives access to whoever knows it.
    EndpointToken,
}

impl SecretKind {
    /// What was found, in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::CredentialHeader => "a header that carries credentials",
            Self::BearerToken => "what looks like a bearer token",
            Self::BasicCredentials => "what looks like user and password in Basic form",
            Self::PrivateKey => "what looks like a private key",
            Self::Jwt => "what looks like a JSON Web Token",
            Self::ProviderToken => "what looks like a provider's access token",
            Self::CloudKey => "what looks like a cloud access key",
            Self::SigningSecret => "what looks like a signing secret",
            Self::UrlUserinfo => "a URL with a user or password",
            Self::SensitiveValue => "a value under a sensitive name",
            Self::EndpointToken => "what looks like an endpoint token in a URL",
        }
    }

    /// What to send instead.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::CredentialHeader => "leave the header out; name the credential by its label",
            Self::BearerToken | Self::BasicCredentials | Self::ProviderToken | Self::CloudKey => {
                "send the credential's label in credential_label, and replace the credential itself now"
            }
            Self::PrivateKey => "send the key's label, and replace the key itself now",
            Self::Jwt => "send the token's id (jti) or a digest",
            Self::SigningSecret => "send the label of the key in key_label",
            Self::UrlUserinfo => "send the host and the route template without user and password",
            Self::SensitiveValue => "send the name without the value",
            Self::EndpointToken => "send the route template with the token as {endpoint_token}",
        }
    }
}

/// Looks for a secret in a text.
#[must_use]
pub fn scan(text: &str) -> Option<SecretKind> {
    // Nothing shorter is a secret of a known shape: the shortest are a://b@c and ?sig=1.
    if text.len() < 6 {
        return None;
    }
    shapes::scan(text.as_bytes())
}

/// Looks for a secret in a path: as [`scan`], and for long random segments.
#[must_use]
pub fn scan_route(path: &str) -> Option<SecretKind> {
    scan(path).or_else(|| {
        path.split('/')
            .any(names::is_random_segment)
            .then_some(SecretKind::EndpointToken)
    })
}
